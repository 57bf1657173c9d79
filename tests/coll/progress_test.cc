// Long operations on a slow network, in virtual time: what counts as progress, and what is said of
// it. Rank 0 is an executor; the others only read what it sends.
#include <gmock/gmock.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "base/log.h"
#include "coll/executor.h"
#include "coll/plan_carrier.h"
#include "tests/sim_cluster/mesh.h"
#include "transport/stream.h"

namespace lockstep::coll {
namespace {

using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""s;
using testing::ContainsRegex;
using testing::ElementsAre;
using testing::EndsWith;

constexpr std::uint64_t kMegabit = 125'000;  // bytes a second
constexpr std::uint64_t kCount = 1 << 18;    // float32: 1 MiB, 8.4 s with a megabit

class SlowNetwork : public testing::Test {
 protected:
  SlowNetwork() {
    set_log_sink([this](LogLevel, std::string_view text) { logged_ += std::string(text) + '\n'; });
  }
  ~SlowNetwork() override { set_log_sink({}); }

  /// Rank 0 of so many, alone with connections to the others.
  void start(int ranks) {
    mesh_ =
        simulated::make_mesh(world_, network_, ranks, 4000, [](int low, int) { return low == 0; });
    poller_ = network_.at(simulated::host(0)).poller();
    auto link = std::make_unique<transport::StreamLink>(
        transport::StreamLink::Setup{.rank = 0,
                                     .size = ranks,
                                     .generation = 1,
                                     .failure = &failure_,
                                     .clock = &world_,
                                     .peers = simulated::borrow(mesh_[0]),
                                     .poller = poller_.get()});
    GroupSpec group;
    for (int rank = 0; rank < ranks; ++rank) group.members.push_back(rank);
    executor_ = std::make_unique<Executor>(
        std::make_unique<PlanCarrier>(std::move(link), plan::Layout::uniform(ranks), options_),
        options_, group, std::make_shared<Records>(0, ""), Executor::Deserted(), &world_);
  }

  /// A rank reads all that comes, every millisecond, up to so many bytes.
  void read(int rank, std::uint64_t most = UINT64_MAX) {
    std::vector<std::byte> bytes(std::min<std::uint64_t>(most, 1 << 16));
    if (bytes.empty()) return;
    const auto got = mesh_[static_cast<std::size_t>(rank)][0]->read(bytes).bytes;
    world_.schedule_after(1ms, [=, this] { read(rank, most - got); });
  }

  Status run(plan::Kind kind) {
    Call call;
    call.kind = kind;
    call.dtype = DType::float32;
    call.count = kCount;
    call.root = kind == plan::Kind::gather ? 1 : 0;  // rank 0 sends
    const ConstBuffer buffer(DType::float32, values_.data(), kCount);
    call.add_input({&buffer, 1});
    call.set_output({&buffer, 1});
    call.seal();
    return executor_->run(call, executor_->issue(), Deadline::never());
  }
  [[nodiscard]] Duration elapsed() const { return world_.now() - Time{}; }

  sim::World world_{1};
  sim::Network network_{world_, {.buffer = 20'000, .bytes_per_second = kMegabit}};
  simulated::Mesh mesh_;
  std::unique_ptr<sys::Poller> poller_;
  transport::Failure failure_;
  SessionOptions options_{.progress_timeout = 1s, .stall_report = 2s};
  std::unique_ptr<Executor> executor_;
  std::vector<float> values_ = std::vector<float>(kCount, 1.0F);
  std::string logged_;
};

/// The ranks that only send: everything is queued at once, then it takes its time.
class Senders : public SlowNetwork, public testing::WithParamInterface<plan::Kind> {};
INSTANTIATE_TEST_SUITE_P(Kinds, Senders, testing::Values(plan::Kind::broadcast, plan::Kind::gather),
                         [](const auto& each) { return plan::to_string(each.param); });

TEST_P(Senders, BytesThatAreSentCountAsProgress) {
  start(2);
  read(1);
  const Status status = run(GetParam());
  EXPECT_TRUE(status.ok()) << status.message();
  EXPECT_GT(elapsed(), 8s) << "the network was not slow";
}

TEST_P(Senders, ARankThatTakesNoMoreIsGivenUp) {
  start(2);
  read(1, 3 * kMegabit);
  const Status status = run(GetParam());
  EXPECT_EQ(status.kind(), ErrorKind::timeout) << status.message();
  EXPECT_THAT(status.culprits(), ElementsAre(1));
  // What comes after its last byte is lost in the connection's buffer.
  EXPECT_GE(elapsed(), 3900ms);
  EXPECT_LE(elapsed(), 4500ms);
  EXPECT_THAT(status.message(), EndsWith(" and moved 0.4 of 1.0 MiB"));
}

/// The timeout is a proposal, and the rank that would answer is stopped.
TEST_P(Senders, WithoutAVerdictTheFailureIsThisRanksOwnAndFinal) {
  failure_.hold_for_verdict();
  start(2);
  read(1, 3 * kMegabit);
  const Status first = run(GetParam());
  EXPECT_EQ(first.kind(), ErrorKind::timeout) << first.message();
  EXPECT_THAT(first.culprits(), ElementsAre(1));
  const Duration waited = elapsed();
  EXPECT_LE(waited, 4500ms + transport::kVerdictPatience);
  // Bytes of the first call are still to be sent, from memory that its caller has taken back.
  const Status second = run(GetParam());
  EXPECT_EQ(second.kind(), ErrorKind::timeout) << second.message();
  EXPECT_THAT(second.message(), testing::StartsWith("operation 1 "));
  EXPECT_EQ(elapsed(), waited);
}

TEST_P(Senders, A17TheRateIsReported) {
  start(2);
  read(1);
  ASSERT_TRUE(run(GetParam()).ok());
  const std::string who = "[(][^)]*[)] for rank 1 [(]100 % of the wait[)]; ";
  const std::string rate = " of 1.0 MiB moved, 1[12][0-9].[0-9] KiB/s, ";
  EXPECT_THAT(logged_, ContainsRegex("rank 0 has waited 2.0 s in operation 1 " + who + "0.2" +
                                     rate + "about 6 s to go\n"));
  EXPECT_THAT(logged_, ContainsRegex("rank 0 has waited 6.0 s in operation 1 " + who + "0.7" +
                                     rate + "about 2 s to go\n"));
}

TEST_F(SlowNetwork, BytesToAnyRankCount) {
  options_.algorithms = "broadcast=tree";  // rank 0 sends to both
  start(3);
  read(1);
  world_.schedule_after(7s, [this] { read(2); });
  const Status status = run(plan::Kind::broadcast);
  EXPECT_TRUE(status.ok()) << status.message();
}

}  // namespace
}  // namespace lockstep::coll
