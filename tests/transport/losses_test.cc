// Packets that are lost between two ranks that are well, without an error or an end, in virtual
// time. Rank 1 of a generation waits; the other one is rank 3.
#include <gmock/gmock.h>

#include <chrono>
#include <memory>
#include <string>

#include "tests/transport/streams.h"

namespace lockstep::transport {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using namespace std::chrono_literals;

class Losses : public StreamsFixture {
 protected:
  Losses() {
    start(2);
    links_.clear();
    for (int rank : {0, 1}) {
      const auto at = static_cast<std::size_t>(rank);
      pollers_.push_back(network_->at(simulated::host(rank)).poller());
      links_.push_back(
          std::make_unique<StreamLink>(StreamLink::Setup{.rank = rank,
                                                         .size = 2,
                                                         .generation = 5,
                                                         .failure = &failures_[at],
                                                         .clock = &*world_,
                                                         .peers = simulated::borrow(mesh_[at]),
                                                         .poller = pollers_[at].get(),
                                                         .members = {1, 3},
                                                         .path_patience = 2s}));
    }
    begin_all(broadcast(1));
  }
  ~Losses() override { links_.clear(); }

  void lose(int from, int to) {
    network_->silence({.from = simulated::host(from), .to = simulated::host(to)});
  }
  void heal(int from, int to) {
    network_->heal({.from = simulated::host(from), .to = simulated::host(to)});
  }
  /// Rank 1 waits for rank 3, at most so long; until it fails or ten seconds have passed.
  Duration wait() {
    const Time begin = world_->now();
    (void)link(0).wait(
        1, [] { return false; }, Deadline::at(begin + 10s));
    return world_->now() - begin;
  }
  /// The other rank sends something now and then.
  void chatter() {
    link(1).send(0, bytes_);
    world_->schedule_after(300ms, [this] { chatter(); });
  }

  const Bytes bytes_ = pattern(100);
  std::vector<std::unique_ptr<sys::Poller>> pollers_;
};

TEST_F(Losses, OneWayNamesTheLinkAndTheDirection) {
  lose(0, 1);
  chatter();
  link(0).send(1, bytes_);
  const Duration took = wait();
  EXPECT_GE(took, 2500ms);
  EXPECT_LE(took, 2800ms);
  const Status why = failures_[0].cause();
  EXPECT_EQ(why.kind(), ErrorKind::peer_lost);
  EXPECT_EQ(why.code(), Code::unavailable);
  EXPECT_THAT(why.culprits(), ElementsAre(1, 3));
  EXPECT_THAT(why.message(), AllOf(HasSubstr("packets from rank 1 to rank 3 ("),
                                   HasSubstr("while packets arrive from rank 3")));
}

/// The acknowledgements are lost, or nobody knows.
TEST_F(Losses, WhereNothingArrivesTheLinkIsNamed) {
  lose(1, 0);
  link(0).send(1, bytes_);
  const Duration took = wait();
  EXPECT_GE(took, 3000ms);
  EXPECT_LE(took, 3300ms);
  const Status why = failures_[0].cause();
  EXPECT_THAT(why.culprits(), ElementsAre(1, 3));
  EXPECT_THAT(why.message(), AllOf(HasSubstr("packets between rank 1 and rank 3 ("),
                                   HasSubstr("and nothing arrives from rank 3")));
}

TEST_F(Losses, AreSurvivedIfTheyAreShort) {
  for (int i = 0; i < 3; ++i) {
    lose(0, 1);
    lose(1, 0);
    link(0).send(1, bytes_);
    world_->schedule_after(1900ms, [this] {
      heal(0, 1);
      heal(1, 0);
    });
    (void)link(0).wait(
        1, [] { return false; }, Deadline::at(world_->now() + 2s));
  }
  EXPECT_FALSE(failures_[0].raised());
}

TEST_F(Losses, ARankThatDoesNotReadHasLostNothing) {
  const Bytes much = pattern(1'000'000);
  link(0).send(1, much);
  EXPECT_GE(wait(), 10s);
  EXPECT_FALSE(failures_[0].raised());
}

/// The process was stopped, and what is on its way may arrive now.
TEST_F(Losses, TimeInWhichNobodyLookedDoesNotCount) {
  link(0).send(1, bytes_);
  lose(0, 1);
  (void)link(0).wait(
      1, [] { return false; }, Deadline::at(world_->now() + 200ms));
  world_->run_for(8s);
  heal(0, 1);
  (void)link(0).wait(
      1, [] { return false; }, Deadline::at(world_->now() + 200ms));
  EXPECT_FALSE(failures_[0].raised());
}

}  // namespace
}  // namespace lockstep::transport
