// Messages between two ranks.
#include <gmock/gmock.h>

#include "tests/engines/mpi/group.h"

namespace lockstep::coll {
namespace {

using ::testing::HasSubstr;

TEST(MpiMessages, KeepTheirOrderAndConcernNobodyElse) {
  Session group = make_group();
  const int last = group.size() - 1;
  if (last == 0) return;
  if (group.rank() == 0) {
    for (int i = 0; i < 100; ++i) {
      const std::vector<double> x(7, i);
      group.send(std::span(x), To{last});
    }
  }
  if (group.rank() == last) {
    for (int i = 0; i < 100; ++i) {
      std::vector<double> x(7);
      group.receive(std::span(x), From{0});
      EXPECT_EQ(x, std::vector<double>(7, i));
    }
  }
  group.barrier();
}

TEST(MpiMessages, BothDirectionsAtOnce) {
  Session group = make_group();
  const int peer = group.rank() ^ 1;
  if (peer < group.size()) {
    const std::vector<int> out(50'000, group.rank());
    std::vector<int> in(50'000);
    Work sent = group.start_send(std::span(out), To{peer});
    group.receive(std::span(in), From{peer});
    sent.wait();
    EXPECT_EQ(in[49'999], peer);
  }
  group.barrier();
}

TEST(MpiMessages, OfASubgroupAndOfItsParentDoNotMix) {
  Session group = make_group();
  Session part = group.split({.color = 0, .key = -group.rank()});
  if (group.size() >= 2) {
    const std::vector<int> one = {1};
    const std::vector<int> two = {2};
    std::vector<int> x(1);
    std::vector<int> y(1);
    const int first = part.size() - 1;  // rank 0 of the parent
    if (group.rank() == 0) {
      Work a = group.start_send(std::span(one), To{1});
      Work b = part.start_send(std::span(two), To{first - 1});
      a.wait();
      b.wait();
    } else if (group.rank() == 1) {
      part.receive(std::span(y), From{first});
      group.receive(std::span(x), From{0});
      EXPECT_EQ(x, one);
      EXPECT_EQ(y, two);
    }
  }
  group.barrier();
}

TEST(MpiMessages, ASendIsOverWhenItIsReceived) {
  Session group = make_group();
  if (group.size() < 2) return;
  std::vector<int> x(1, 7);
  if (group.rank() == 0) {
    Work sent = group.start_send(std::span(x), To{1});
    group.barrier();  // rank 1 has not asked for it yet
    EXPECT_FALSE(sent.done());
    group.barrier();
    sent.wait();
  } else {
    group.barrier();
    group.barrier();
    if (group.rank() == 1) group.receive(std::span(x), From{0});
  }
  group.barrier();
}

TEST(MpiMessages, BothRanksSeeAMismatch) {
  Session group = make_group();
  if (group.size() != 2) return;
  std::vector<int> x(5);
  try {
    if (group.rank() == 0) {
      group.send(std::span(x).first(4), To{1});
    } else {
      group.receive(std::span(x), From{0});
    }
    ADD_FAILURE() << "rank " << group.rank() << " noticed nothing";
  } catch (const Mismatch& error) {
    EXPECT_THAT(error.what(), HasSubstr("send_receive int32[4]"));
    EXPECT_THAT(error.what(), HasSubstr("send_receive int32[5]"));
  }
}

}  // namespace
}  // namespace lockstep::coll
