// Session: one rank's membership in a group of ranks, and the collectives of that group.
//
//   group.all_reduce(Op::mean, std::span(gradient));
//   group.broadcast(std::span(weights), Root{0});
//
// Every rank of the group makes the same calls in the same order; a rank that asks for something
// else is found before any data is mixed and every rank throws Mismatch with a table of who asked
// for what. The first failure ends the generation: all waits on all ranks throw, naming the same
// culprits, and so does every later call (also on a rank whose own part was over already). A group
// of one makes every operation a copy or nothing.
//
// Each collective exists twice: name(...) blocks, start_name(...) returns a Work. Operations of one
// session run one after another in the order they were called, from whatever threads.
//
// Sums associate as one fixed tree over the global replicas, whatever the layout
// (SumOrder::fixed_tree). Input and output of all_reduce, reduce and broadcast may be the same
// memory; other overlaps are the caller's error.
//
// Closing a session (close(), or its destructor) while peers wait for it makes them throw PeerLost
// naming this rank. With operations of its own unfinished it ends the generation: they throw
// Cancelled, and closing takes half a second at most, whether the other ranks answer or not.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lockstep/coll/buffer.h"
#include "lockstep/coll/memory.h"
#include "lockstep/coll/options.h"
#include "lockstep/coll/work.h"
#include "lockstep/error.h"
#include "lockstep/here.h"
#include "lockstep/op.h"

namespace lockstep::coll {

class Batch;

/// Elements per rank where they differ; empty: equal, derived from the buffers.
using Counts = std::span<const std::uint64_t>;

class Session {
 public:
  Session(Session&&) noexcept;
  Session& operator=(Session&&) noexcept;
  ~Session();
  /// False once it was moved from.
  explicit operator bool() const noexcept { return impl_ != nullptr; }
  /// Leaves the group now: what the destructor does. Later calls of this session are InvalidUsage.
  void close() noexcept;

  [[nodiscard]] int rank() const noexcept;
  [[nodiscard]] int size() const noexcept;
  /// A label of the host `rank` runs on; equal labels, same host.
  [[nodiscard]] int host(int rank) const;
  /// Replicas of all ranks together, and the first of this rank.
  [[nodiscard]] int replicas() const noexcept;
  [[nodiscard]] int first_replica() const noexcept;
  /// What connects the ranks of this group: "threads", "shared memory", "tcp", "tls", ...
  [[nodiscard]] std::string transport() const;
  /// Grows each time a group is formed anew in this process.
  [[nodiscard]] std::uint64_t generation() const noexcept;

  // Every replica's input becomes their sum (mean, ...) in every rank's output.
  void all_reduce(Op op, Buffer in_place, const CallOptions& options = {}, Here here = Here::now());
  void all_reduce(Op op, Inputs inputs, Buffer output, const CallOptions& options = {},
                  Here here = Here::now());
  Work start_all_reduce(Op op, Buffer in_place, const CallOptions& options = {},
                        Here here = Here::now());
  Work start_all_reduce(Op op, Inputs inputs, Buffer output, const CallOptions& options = {},
                        Here here = Here::now());

  // As all_reduce, but only root's output is written; other ranks may give an empty one.
  void reduce(Op op, Inputs inputs, Buffer output, Root root, const CallOptions& options = {},
              Here here = Here::now());
  Work start_reduce(Op op, Inputs inputs, Buffer output, Root root, const CallOptions& options = {},
                    Here here = Here::now());

  // Root's buffer is copied into everybody's.
  void broadcast(Buffer buffer, Root root, const CallOptions& options = {},
                 Here here = Here::now());
  Work start_broadcast(Buffer buffer, Root root, const CallOptions& options = {},
                       Here here = Here::now());

  // Inputs one after another, in rank order, in every rank's output.
  void all_gather(ConstBuffer input, Buffer output, Counts counts = {},
                  const CallOptions& options = {}, Here here = Here::now());
  Work start_all_gather(ConstBuffer input, Buffer output, Counts counts = {},
                        const CallOptions& options = {}, Here here = Here::now());

  // Inputs are reduced; rank r gets the r-th part.
  void reduce_scatter(Op op, Inputs inputs, Buffer output, Counts counts = {},
                      const CallOptions& options = {}, Here here = Here::now());
  Work start_reduce_scatter(Op op, Inputs inputs, Buffer output, Counts counts = {},
                            const CallOptions& options = {}, Here here = Here::now());

  // Inputs one after another in root's output; the opposite; and everybody's r-th part to rank r.
  void gather(ConstBuffer input, Buffer output, Root root, Counts counts = {},
              const CallOptions& options = {}, Here here = Here::now());
  Work start_gather(ConstBuffer input, Buffer output, Root root, Counts counts = {},
                    const CallOptions& options = {}, Here here = Here::now());
  void scatter(ConstBuffer input, Buffer output, Root root, Counts counts = {},
               const CallOptions& options = {}, Here here = Here::now());
  Work start_scatter(ConstBuffer input, Buffer output, Root root, Counts counts = {},
                     const CallOptions& options = {}, Here here = Here::now());
  void all_to_all(ConstBuffer input, Buffer output, const CallOptions& options = {},
                  Here here = Here::now());
  Work start_all_to_all(ConstBuffer input, Buffer output, const CallOptions& options = {},
                        Here here = Here::now());

  void barrier(const CallOptions& options = {}, Here here = Here::now());
  Work start_barrier(const CallOptions& options = {}, Here here = Here::now());

  // Between two ranks; the others take no part. A send is over when the receiver has the data,
  // whatever connects the two: two ranks that both send before they receive wait for ever.
  // Messages from one rank to another keep their order and are ordered among themselves only.
  void send(ConstBuffer input, To to, const CallOptions& options = {}, Here here = Here::now());
  Work start_send(ConstBuffer input, To to, const CallOptions& options = {},
                  Here here = Here::now());
  void receive(Buffer output, From from, const CallOptions& options = {}, Here here = Here::now());
  Work start_receive(Buffer output, From from, const CallOptions& options = {},
                     Here here = Here::now());

  /// Several operations issued as one; see batch.h.
  [[nodiscard]] Batch batch();

  struct Split {
    int color = 0;  // ranks of equal color form a group; 0 or more
    int key = 0;    // order within it; equal keys keep the order of ranks
  };
  /// A collective: every rank gets the session of its subgroup. A failure in a subgroup ends the
  /// whole generation; culprits are named by their rank in the outermost group.
  [[nodiscard]] Session split(Split how, const CallOptions& options = {}, Here here = Here::now());

  /// Zeroed memory for buffers that peers on the same host reach in place; see memory.h.
  /// SystemError if memory is short.
  [[nodiscard]] Memory allocate(std::size_t bytes);

  /// Ends the generation on every rank: waits and later calls throw Cancelled with this reason,
  /// of which one printable line of at most 512 bytes is kept. Any thread.
  void abort(const std::string& reason) noexcept;
  /// This rank cannot go on, for a reason of its own: as abort(), but the others throw PeerLost
  /// that names it.
  void abandon(const std::string& reason) noexcept;
  /// Throws what ended the generation, if it has ended.
  void check() const;

  /// The last 1,024 operations of this rank in this group, oldest first, one per line. When the
  /// generation fails the last few are logged, and those of all groups of the rank are written to a
  /// file if LOCKSTEP_HISTORY_DIR names a directory.
  [[nodiscard]] std::string history() const;

  class Impl;
  explicit Session(std::shared_ptr<Impl> impl) noexcept;

 private:
  friend class Batch;
  std::shared_ptr<Impl> impl_;
};

}  // namespace lockstep::coll
