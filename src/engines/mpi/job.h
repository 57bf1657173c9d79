// Job: a generation whose ranks MPI connects; one for each call of mpi_session(). Holds what ended
// it, its communicators and who has left which group.
//
// A failure is told to all ranks by notices, which they read while they wait: MPI itself would let
// them wait for ever.
#pragma once

#include <mpi.h>

#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/gate.h"
#include "base/mutex.h"
#include "coll/group_spec.h"
#include "engines/mpi/runtime.h"
#include "transport/failure.h"
#include "transport/generation.h"

namespace lockstep::mpi {

class Job final : public transport::Generation {
 public:
  /// All ranks call it; Timeout if they do not.
  static std::shared_ptr<Job> form(std::chrono::nanoseconds timeout);
  explicit Job(Runtime& runtime);
  ~Job() override;

  [[nodiscard]] Runtime& runtime() noexcept { return runtime_; }
  [[nodiscard]] MPI_Comm world() const noexcept { return world_; }
  /// Where waiting operations sleep; knocked at when the generation fails.
  [[nodiscard]] Gate& gate() noexcept { return gate_; }

  [[nodiscard]] std::uint64_t generation() const noexcept override { return generation_; }
  [[nodiscard]] std::string transport(const std::vector<int>& /*members*/) const override {
    return "mpi";
  }
  [[nodiscard]] bool failed() const noexcept override { return failure_.raised(); }
  [[nodiscard]] Status failure() const override { return failure_.cause(); }
  /// Tells every rank.
  void fail(const Status& why) noexcept override { fail(why, {}); }
  /// Tells those who do not know it yet.
  void fail(const Status& why, std::span<const int> know) noexcept;
  void leave(int /*rank*/) noexcept override {}  // its groups have been left

  /// The communicator of a group of collectives, for which all members must come. Timeout if one does
  /// not, and what has ended the generation if that happens meanwhile.
  MPI_Comm open(const coll::GroupSpec& spec, std::chrono::nanoseconds timeout);
  void close(std::uint64_t group) noexcept;
  struct Circle {
    MPI_Comm comm = MPI_COMM_NULL;
    std::vector<int> members;
  };
  /// Of a group that is open.
  [[nodiscard]] Circle circle(std::uint64_t group);

  /// This rank takes part in the group no more, after so many operations.
  void tell_left(const coll::GroupSpec& spec, std::uint64_t completed) noexcept;
  /// How many operations of the group `member` had completed when it left; empty: it has not left.
  /// Known as long as the group, or the one whose messages it carries, is open.
  [[nodiscard]] std::optional<std::uint64_t> left(std::uint64_t group, int member);

  void receive(const Notice& notice);
  /// The process exits with sessions open.
  void end_of_process() noexcept;

 private:
  struct Left {
    std::uint64_t home = 0;
    std::uint64_t completed = 0;
  };
  struct Meeting;

  /// Waits until all members have come to make the group.
  void meet(const coll::GroupSpec& spec, std::chrono::nanoseconds timeout);
  void wait_for(Meeting& meeting, const coll::GroupSpec& spec, std::chrono::nanoseconds timeout);
  MPI_Comm make_communicator(const coll::GroupSpec& spec);
  void forget(std::uint64_t group) noexcept;

  Runtime& runtime_;
  std::uint64_t generation_;
  std::uint64_t number_ = 0;  // in notices; the same on all ranks
  MPI_Comm world_ = MPI_COMM_NULL;
  transport::Failure failure_;
  Gate gate_;
  Mutex mutex_;
  std::map<std::uint64_t, Circle> circles_ GUARDED_BY(mutex_);
  std::map<std::pair<std::uint64_t, int>, Left> left_ GUARDED_BY(mutex_);
};

}  // namespace lockstep::mpi
