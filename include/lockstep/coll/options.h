// The options of sessions and of single operations, with their defaults.
#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::coll {

/// Which rank sends, receives or holds: arguments that read as what they are.
struct Root {
  int rank = 0;
};
struct To {
  int rank = 0;
};
struct From {
  int rank = 0;
};

/// fixed_tree: sums associate as one fixed binary tree over the global replicas, so the bits do not
/// depend on the layout. any: the fastest order; equal on all ranks of a run, but another with
/// other ranks.
enum class SumOrder : std::uint8_t { fixed_tree, any };

/// What travels in place of float32. same: float32. bf16, f16: every replica's input is rounded
/// once to that type, added in float32, and the result is rounded once: about half the bytes
/// between machines, results of 8 or 11 bits, and beyond 65504 f16 is infinite.
enum class WireType : std::uint8_t { same, bf16, f16 };

/// What carries the collectives of join(): ours, or MPI's (mpi.h). An engine that is not built
/// gives one warning and the host's collectives.
enum class Engine : std::uint8_t { automatic, host, mpi, nccl };

/// Of one operation.
struct CallOptions {
  /// The tensor's name. Ranks that give different ones disagree (Mismatch): two tensors of one
  /// shape that are reduced in another order on another rank are not mixed. Messages show the end
  /// of a long one.
  std::string_view name = {};
  /// What messages say of the call in place of collective, element type and name, with the place of
  /// the call behind it: "gather int64[1, 1]". Not compared; what of it is too long is not shown.
  std::string_view description = {};
  /// One deadline for the whole call, from entry. 0: the session's progress timeout only.
  std::chrono::nanoseconds timeout{0};
  SumOrder order = SumOrder::fixed_tree;
  /// If given, ranks that give different shapes of equal size disagree (Mismatch).
  std::span<const std::int64_t> shape = {};
  /// For all_reduce with Op::sum or Op::mean of float32; the same on all ranks, else Mismatch.
  WireType wire = WireType::same;
  /// For a started call whose caller computes meanwhile: its waits leave the core to others at once
  /// instead of polling for a while first.
  bool background = false;
};

/// Of a session.
struct SessionOptions {
  /// Replicas this rank contributes to reductions; see Session::all_reduce.
  int replicas = 1;
  /// An operation fails with Timeout when no byte has come or gone on this rank for so long.
  std::chrono::nanoseconds progress_timeout = std::chrono::seconds(300);
  /// A waiting operation says this often who is missing, how much has moved and how fast.
  std::chrono::nanoseconds stall_report = std::chrono::seconds(10);
  Engine engine = Engine::automatic;
  /// Which algorithm for which size, e.g. "all_reduce=direct:0-64K,halving:64K-". Empty:
  /// LOCKSTEP_ALGORITHMS, else chosen by cost. Must be the same on all ranks.
  std::string algorithms = {};
  /// What moving and adding bytes costs here, as `lockstep doctor` measures it, e.g.
  /// "memory.alpha=0.2,tcp.bandwidth=1.2e9". What it leaves open, or all if it is empty and
  /// LOCKSTEP_COSTS is, is that of an ordinary server. Must be the same on all ranks.
  std::string costs = {};
};

}  // namespace lockstep::coll
