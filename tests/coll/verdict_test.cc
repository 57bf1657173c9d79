// Ranks that must agree on the cause of a failure, and a verdict that does not come: whoever gives
// it is stopped.
#include <gmock/gmock.h>

#include <atomic>
#include <memory>
#include <new>
#include <thread>
#include <vector>

#include "coll/executor.h"
#include "coll/plan_carrier.h"
#include "coll/session_impl.h"
#include "transport/shm.h"

namespace lockstep::coll {
namespace {

using testing::HasSubstr;
using namespace std::chrono_literals;

/// Rank 0's end of a group of two that never agree.
class Undecided final : public transport::GroupEnd {
 public:
  Undecided() {
    failure_.hold_for_verdict();
    failure_.listen({.reported = [this] { gate_.notify(); }, .raised = [this] { gate_.notify(); }});
  }
  [[nodiscard]] int rank() const noexcept override { return 0; }
  [[nodiscard]] int size() const noexcept override { return 2; }
  [[nodiscard]] bool failed() const noexcept override { return failure_.raised(); }
  [[nodiscard]] Status failure() const override { return failure_.cause(); }
  void fail(const Status& why) noexcept override { failure_.report(why); }
  bool wait(int /*peer*/, FunctionRef<bool()> done, Deadline deadline) override {
    return gate_.wait([&] { return done() || failed(); }, deadline);
  }
  void await_verdict() noexcept override { settle_alone(); }  // the patience is over at once
  void settle_alone() noexcept override { failure_.settle_alone(); }

  void await_proposal() {
    gate_.wait([this] { return failure_.proposed(); }, Deadline::never());
  }
  void notify() noexcept { gate_.notify(); }

 private:
  Gate gate_;
  transport::Failure failure_;
};

/// Its operations are under way until they are released.
class Held final : public Carrier {
 public:
  transport::GroupEnd& end() noexcept override { return group; }
  const char* start(const Call& /*call*/, wire::Descriptor& /*descriptor*/) override {
    ++started;
    if (throws) throw std::bad_alloc();
    return "held";
  }
  State poll() override {
    if (group.failed()) return State::failed;
    return released.load() ? State::done : State::pending;
  }
  [[nodiscard]] std::uint64_t progress() const noexcept override { return 0; }

  Undecided group;
  std::atomic<int> started = 0;
  std::atomic<bool> released = false;
  bool throws = false;
};

class Verdicts : public testing::Test {
 protected:
  static GroupSpec two() { return {.members = {0, 1}, .replicas = {1, 1}, .hosts = {0, 0}}; }
  Status run(std::uint64_t ticket, Deadline deadline = Deadline::never()) {
    Call call;
    call.seal();
    return executor_.run(call, ticket, deadline);
  }

  Held* carrier_ = new Held;
  Executor executor_{std::unique_ptr<Carrier>(carrier_), SessionOptions(), two(),
                     std::make_shared<Records>(0, "")};
};

TEST_F(Verdicts, AfterACallThatThrewNoneBegins) {
  carrier_->throws = true;
  const Status thrown = run(executor_.issue());
  EXPECT_EQ(thrown.code(), Code::resource_exhausted);
  const Status next = run(executor_.issue());
  EXPECT_EQ(carrier_->started, 1) << "it would have met what the first one left behind";
  EXPECT_EQ(next.code(), Code::resource_exhausted);
}

TEST_F(Verdicts, ACallWhoseTurnCameTooLateDoesNotBegin) {
  const std::uint64_t first = executor_.issue();
  const std::uint64_t second = executor_.issue();
  Status late;
  std::jthread waits([&] { late = run(second, Deadline::after(1ms)); });
  std::jthread works([&] { EXPECT_TRUE(run(first).ok()); });
  carrier_->group.await_proposal();
  carrier_->released = true;
  carrier_->group.notify();
  waits.join();
  EXPECT_EQ(late.kind(), ErrorKind::timeout);
  EXPECT_THAT(late.message(), HasSubstr("operation 2 (barrier) did not start within"));
  EXPECT_EQ(carrier_->started, 1);
}

/// Rank 0 of two processes that share memory; the other one never says anything.
class Lonely final : public transport::Generation {
 public:
  Lonely() {
    failure_.hold_for_verdict();
    failure_.listen({.reported = {}, .raised = [this] { host_.wake_all(); }});
  }
  [[nodiscard]] std::uint64_t generation() const noexcept override { return 1; }
  [[nodiscard]] std::string transport(const std::vector<int>& /*members*/) const override {
    return "shared memory";
  }
  [[nodiscard]] bool failed() const noexcept override { return failure_.raised(); }
  [[nodiscard]] Status failure() const override { return failure_.cause(); }
  void fail(const Status& why) noexcept override { failure_.report(why); }
  void leave(int /*rank*/) noexcept override { host_.leave(); }

  std::unique_ptr<Carrier> carrier(const GroupSpec& spec, int rank, const SessionOptions& options) {
    return std::make_unique<PlanCarrier>(
        std::make_unique<transport::ShmLink>(host_, spec.id, spec.members, spec.members, rank,
                                             failure_),
        plan::Layout(spec.replicas, spec.hosts), options);
  }

 private:
  static constexpr std::size_t kArena = std::size_t{16} << 20;
  transport::ShmHost host_{
      std::make_shared<sys::Segment>(sys::Segment::create("lockstep-test", 2 * kArena)), 0, 2};
  transport::Failure failure_;
};

TEST_F(Verdicts, CloseDoesNotWaitForOne) {
  const auto generation = std::make_shared<Lonely>();
  const auto carriers = [&](const GroupSpec& spec, int rank, const SessionOptions& options) {
    return generation->carrier(spec, rank, options);
  };
  Session session(
      std::make_shared<Session::Impl>(generation, carriers, two(), 0, SessionOptions()));
  std::vector<float> values(4);
  Work unfinished = session.start_all_reduce(Op::sum, std::span(values));
  const auto begin = std::chrono::steady_clock::now();
  session.close();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 5s);
  try {
    unfinished.wait();
    ADD_FAILURE() << "the other rank took no part";
  } catch (const Cancelled& error) {
    EXPECT_THAT(error.what(),
                HasSubstr("rank 0 closed its session with 1 operation(s) unfinished"));
  }
}

}  // namespace
}  // namespace lockstep::coll
