// Ours. Variants: "memory" (one host), "plaintext" and "encrypted" (data over TCP).
#include <array>
#include <chrono>
#include <optional>

#include "bench/peers/addresses.h"
#include "bench/peers/rank_main.h"
#include "lockstep/coll.h"
#include "lockstep/coll/join.h"

namespace lockstep::bench::peers {
namespace {

/// Any will do, as long as all ranks have the same.
constexpr const char* kKey = "6c6f636b73746570206d6561737572657320697473656c6620616e6420706565";

coll::Session join_group(const RankOptions& options) {
  coll::JoinOptions join{};
  join.addresses = addresses_of(options);
  join.rank = options.rank;
  join.timeout = std::chrono::seconds(30);
  if (options.variant == "memory") {
    join.insecure = true;
  } else {
    join.key = kKey;
    join.plaintext_data = options.variant == "plaintext";
  }
  return coll::join(join);
}

class LockstepCall final : public Call {
 public:
  LockstepCall(coll::Session& group, const Job& job) : group_(group), job_(job) {
    if (job.memory == MemoryKind::caller) {
      caller_.emplace(job);
      all_ = caller_->all();
    } else {
      std::size_t count = 0;
      for (const std::size_t piece : pieces_of(job)) count += piece;
      session_.emplace(group.allocate(count * sizeof(float)));
      all_ = {reinterpret_cast<float*>(session_->data()), count};
    }
    pieces_ = cut(job, all_);
  }

  std::span<float> memory() override { return all_; }
  void run() override {
    if (job_.workload != Workload::resnet50_batch) {
      for (const std::span<float> piece : pieces_) group_.all_reduce(Op::sum, piece);
      return;
    }
    coll::Batch batch = group_.batch();
    for (const std::span<float> piece : pieces_) batch.all_reduce(Op::sum, piece);
    batch.run();
  }

 private:
  coll::Session& group_;
  Job job_;
  std::optional<CallerMemory> caller_;
  std::optional<coll::Memory> session_;
  std::span<float> all_;
  std::vector<std::span<float>> pieces_;
};

class Lockstep final : public Contestant {
 public:
  explicit Lockstep(const RankOptions& options) : group_(join_group(options)) {}
  std::unique_ptr<Call> prepare(const Job& job) override {
    return std::make_unique<LockstepCall>(group_, job);
  }
  void barrier() override { group_.barrier(); }

 private:
  coll::Session group_;
};

}  // namespace
}  // namespace lockstep::bench::peers

int main(int argc, char** argv) {
  using namespace lockstep::bench::peers;
  return rank_main(argc, argv,
                   [](const RankOptions& options) { return std::make_unique<Lockstep>(options); });
}
