// The memory transport: ranks are threads of one process.
//
// Ranks of a group share boards (board_link.h); peers read and write each other's buffers in place.
// Messages (for plans made of sends and receives) go through a queue of (pointer, length) entries
// per ordered pair, copied once by the receiver.
//
//   auto generation = std::make_shared<MemoryGeneration>(2);
//   auto group = std::make_shared<MemoryGroup>(generation, std::vector<int>{0, 1});
//   MemoryLink link(group, /*rank=*/0);       // on rank 0's thread
#pragma once

#include <atomic>
#include <cstddef>
#include <map>
#include <memory>
#include <vector>

#include "base/gate.h"
#include "base/mutex.h"
#include "transport/board_link.h"
#include "transport/fabric.h"
#include "transport/failure.h"

namespace lockstep::transport {

/// What all ranks of one generation in this process share: the failure that ends it, who has left,
/// and a gate per rank at which others sleep while they wait for that rank.
class MemoryGeneration {
 public:
  explicit MemoryGeneration(int ranks);

  [[nodiscard]] int ranks() const noexcept { return ranks_; }
  Gate& gate(int rank) noexcept { return gates_[rank].gate; }
  [[nodiscard]] Failure& failure() noexcept { return failure_; }
  /// Ends the generation and wakes everybody. The first cause wins.
  void fail(const Status& why) noexcept;

  /// A rank that will take part in nothing more: whoever waits for it, in any group, gets PeerLost.
  void leave(int rank) noexcept;
  [[nodiscard]] bool has_left(int rank) const noexcept { return gates_[rank].left.load(); }

 private:
  struct alignas(64) GateLine {
    Gate gate;
    std::atomic<bool> left = false;
  };
  int ranks_;
  std::unique_ptr<GateLine[]> gates_;
  Failure failure_;
};

/// What the ranks of one group share. Members are ranks of the generation, in the group's order.
class MemoryGroup {
 public:
  MemoryGroup(std::shared_ptr<MemoryGeneration> generation, std::vector<int> members);
  ~MemoryGroup();

  [[nodiscard]] int size() const noexcept { return static_cast<int>(members_.size()); }
  [[nodiscard]] MemoryGeneration& generation() noexcept { return *generation_; }
  [[nodiscard]] const std::vector<int>& members() const noexcept { return members_; }
  /// Where others sleep while they wait for a member, by the group's order.
  [[nodiscard]] std::vector<Gate*> gates() const;

  /// A rank that will take part in this group no more: whoever waits for it gets PeerLost.
  void leave(int rank) noexcept;

 private:
  friend class MemoryLink;
  struct Channel;

  [[nodiscard]] Board& board(int rank) noexcept;
  Channel& channel(int from, int to) noexcept;

  std::shared_ptr<MemoryGeneration> generation_;
  std::vector<int> members_;
  std::unique_ptr<Board[]> boards_;
  std::unique_ptr<Channel[]> channels_;  // size * size, by (from, to)
};

class MemoryLink final : public BoardLink {
 public:
  MemoryLink(std::shared_ptr<MemoryGroup> group, int rank);
  ~MemoryLink() override;

  [[nodiscard]] plan::Access access(const Exposure& /*mine*/) const noexcept override {
    return plan::Access::shared;
  }
  int end() override;
  void send(int to, std::span<const std::byte> bytes) override;
  std::size_t receive(int from, std::span<std::byte> bytes) override;
  bool drained(int to) override;
  [[nodiscard]] std::uint64_t unsent() const noexcept override;
  const Exposure& exposed(int peer) override { return *board(peer)->plain.exposure; }

  void fail(const Status& why) noexcept override { generation_.fail(why); }
  [[nodiscard]] bool has_left(int rank) const override;
  void leave() noexcept override { group_->leave(rank()); }

 private:
  std::shared_ptr<MemoryGroup> group_;
  MemoryGeneration& generation_;
  std::vector<int> sent_to_;  // peers with bytes on the way in this operation
};

/// The fabric of ranks that are threads; one object, shared by all of them.
class MemoryFabric final : public Fabric {
 public:
  MemoryFabric(int ranks, std::uint64_t generation_id)
      : generation_id_(generation_id), generation_(std::make_shared<MemoryGeneration>(ranks)) {}

  [[nodiscard]] std::uint64_t generation() const noexcept override { return generation_id_; }
  std::unique_ptr<Link> link(std::uint64_t id, const std::vector<int>& members, int rank) override;
  [[nodiscard]] std::string transport(const std::vector<int>& /*members*/) const override {
    return "threads";
  }
  [[nodiscard]] bool failed() const noexcept override { return generation_->failure().raised(); }
  [[nodiscard]] Status failure() const override { return generation_->failure().cause(); }
  void fail(const Status& why) noexcept override { generation_->fail(why); }
  void leave(int rank) noexcept override { generation_->leave(rank); }

 private:
  std::uint64_t generation_id_;
  std::shared_ptr<MemoryGeneration> generation_;
  Mutex mutex_;
  /// Groups some member of which has not taken its link yet, by id.
  struct Forming {
    std::shared_ptr<MemoryGroup> group;
    std::size_t taken = 0;
  };
  std::map<std::uint64_t, Forming> forming_ GUARDED_BY(mutex_);
};

}  // namespace lockstep::transport
