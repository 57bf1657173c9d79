#include "plan/select.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plan/check.h"

namespace lockstep::plan {
namespace {

using testing::AnyOf;
using testing::HasSubstr;

struct Setting {
  Layout layout = Layout::uniform(8);
  Access access = Access::shared;
  Order order = Order::fixed_tree;
  const char* overrides = "";
};

Choice choose(const Request& request, const Setting& setting) {
  const Costs costs;
  Overrides overrides;
  EXPECT_TRUE(parse_overrides(setting.overrides, overrides).ok());
  return select(request, {.layout = setting.layout,
                          .access = setting.access,
                          .order = setting.order,
                          .element_bytes = 4,
                          .costs = costs,
                          .overrides = overrides});
}

std::string chosen(std::uint64_t count, const Setting& setting, Kind kind = Kind::all_reduce) {
  Request request{.kind = kind, .count = count};
  request.counts.assign(static_cast<std::size_t>(setting.layout.ranks()), count);
  return std::string(choose(request, setting).algorithm->name);
}

TEST(Select, SharedMemory) {
  EXPECT_EQ(chosen(8, {}), "slots");
  EXPECT_EQ(chosen(8, {.layout = Layout::uniform(2)}), "slots");
  EXPECT_EQ(chosen(1 << 20, {}), "one_pass");
  EXPECT_EQ(chosen(1 << 20, {.layout = Layout::uniform(3, 3)}), "one_pass");
  EXPECT_EQ(chosen(1 << 20, {}, Kind::broadcast), "shared");
  EXPECT_EQ(chosen(1 << 20, {}, Kind::reduce_scatter), "shared");
}

TEST(Select, SlotsOfAnyNumberOfReplicas) {
  const Algorithm& staged = *find_algorithm(Kind::all_reduce, "staged");
  for (const int ranks : {2, 3, 4}) {
    for (const int replicas : {1, 2, 3, 5, 8}) {
      const Layout layout = Layout::uniform(ranks, replicas);
      Request request{.kind = Kind::all_reduce, .count = 1 << 22};
      request.counts.assign(static_cast<std::size_t>(ranks), request.count);
      request.chunk = kChunkBytes / 4;
      EXPECT_LE(staged.slot_elements(request, layout) * 4, 3 * kChunkBytes)
          << ranks << " x " << replicas;
      // With many, adding the own ones first is worth a message.
      if (replicas > 2) continue;
      const Setting setting{.layout = layout, .access = Access::slots};
      EXPECT_EQ(choose(request, setting).algorithm->name, "staged") << ranks << " x " << replicas;
    }
  }
}

TEST(Select, Messages) {
  for (const int n : {2, 3, 4, 8, 13}) {
    const Setting setting{.layout = Layout::uniform(n), .access = Access::messages};
    EXPECT_EQ(chosen(8, setting), "doubling") << n;
    EXPECT_THAT(chosen(1 << 22, setting), AnyOf("halving", "direct")) << n;
  }
  EXPECT_EQ(chosen(0, {.access = Access::messages}, Kind::barrier), "dissemination");
}

TEST(Select, UnalignedReplicasRuleOutDoublingAndHalving) {
  const Setting setting{.layout = Layout::uniform(4, 3), .access = Access::messages};
  for (const std::uint64_t count : {1ULL, 1000ULL, 1ULL << 22}) {
    EXPECT_THAT(chosen(count, setting), AnyOf("direct", "tree"));
  }
}

TEST(Select, SeveralHostsKeepDataInsideThem) {
  std::vector<int> hosts(32);
  for (int rank = 0; rank < 32; ++rank) hosts[static_cast<std::size_t>(rank)] = rank / 8;
  const Setting setting{.layout = Layout(std::vector<int>(32, 1), hosts),
                        .access = Access::messages};
  EXPECT_THAT(chosen(1 << 22, setting), AnyOf("hierarchical", "halving"));
  EXPECT_EQ(chosen(1 << 20, setting, Kind::all_gather), "ring");
}

/// Rounds of whole vectors do not overlap; chunks through leaders do. With many ranks a host the
/// leader has too much to do.
TEST(Select, LeadersOfSmallHostsForLargeVectors) {
  const auto by_leaders = [](int ranks, int hosts, std::uint64_t count) {
    std::vector<int> host(static_cast<std::size_t>(ranks));
    for (int rank = 0; rank < ranks; ++rank) {
      host[static_cast<std::size_t>(rank)] = rank * hosts / ranks;
    }
    const Setting setting{.layout = Layout(std::vector<int>(host.size(), 1), host),
                          .access = Access::messages};
    Request request{.count = count, .chunk = 16 << 10};
    request.counts.assign(host.size(), count);
    return choose(request, setting).algorithm->name == "hierarchical";
  };
  EXPECT_FALSE(by_leaders(4, 2, 16 << 10));
  EXPECT_TRUE(by_leaders(4, 2, 1 << 20));
  EXPECT_TRUE(by_leaders(4, 2, 4 << 20));
  EXPECT_FALSE(by_leaders(16, 2, 4 << 20));
  EXPECT_FALSE(by_leaders(4, 4, 4 << 20));
}

TEST(Select, TheRingOnlyWhereItsOrderIsAllowed) {
  Setting setting{.layout = Layout::uniform(6, 3), .access = Access::messages};
  for (const std::uint64_t count : {1ULL, 1000ULL, 1ULL << 26}) {
    EXPECT_NE(chosen(count, setting), "ring");
    EXPECT_NE(chosen(count, setting, Kind::reduce_scatter), "ring");
  }
  setting.order = Order::any;
  EXPECT_EQ(chosen(1 << 26, setting), "ring");
}

TEST(Select, TheChoiceAlwaysServes) {
  const Layout layouts[] = {Layout::uniform(1), Layout::uniform(5, 3), Layout({1, 2}, {0, 1}),
                            Layout({1, 1, 1}, {0, 1, 0})};
  for (const Layout& layout : layouts) {
    for (int k = 0; k < kKindCount; ++k) {
      for (const Access access : {Access::messages, Access::shared}) {
        Request request{.kind = static_cast<Kind>(k), .count = 10};
        request.counts.assign(static_cast<std::size_t>(layout.ranks()), 3);
        const Choice choice = choose(request, {.layout = layout, .access = access});
        ASSERT_NE(choice.algorithm, nullptr);
        EXPECT_EQ(choice.algorithm->refuses(request, layout), "");
        EXPECT_EQ(choice.candidates.size(), algorithms(request.kind).size());
        EXPECT_EQ(check(*choice.algorithm, request, layout).problem, "");
      }
    }
  }
}

TEST(Select, CandidatesComeFastestFirst) {
  const Choice choice = choose({.count = 100}, {.access = Access::messages});
  for (std::size_t i = 1; i < choice.candidates.size(); ++i) {
    const Candidate& a = choice.candidates[i - 1];
    const Candidate& b = choice.candidates[i];
    if (b.refusal.empty()) {
      EXPECT_TRUE(a.refusal.empty());
      EXPECT_LE(a.microseconds, b.microseconds);
    }
  }
  EXPECT_THAT(choice.why,
              HasSubstr("doubling is estimated fastest for all_reduce of 400 B over 8"));
}

TEST(Select, OverridesComeFirst) {
  const char* text = "all_reduce=direct:0-64K,halving:64K-;broadcast=tree";
  const Setting setting{.access = Access::messages, .overrides = text};
  EXPECT_EQ(chosen(10, setting), "direct");
  EXPECT_EQ(chosen((64 << 10) / 4 - 1, setting), "direct");
  EXPECT_EQ(chosen((64 << 10) / 4, setting), "halving");
  EXPECT_THAT(choose({.count = 10}, setting).why, HasSubstr("direct was asked for"));
  EXPECT_EQ(chosen(1 << 24, {.overrides = text}, Kind::broadcast), "tree");
  EXPECT_EQ(chosen(8, {.overrides = "all_reduce=tree;all_reduce=direct:0-1K"}), "direct");
}

TEST(Select, AnOverrideThatCannotServeIsIgnoredAndSaysSo) {
  Choice choice = choose({.count = 10}, {.layout = Layout::uniform(2, 3),
                                         .access = Access::messages,
                                         .overrides = "all_reduce=halving"});
  EXPECT_NE(choice.algorithm->name, "halving");
  EXPECT_THAT(choice.why, HasSubstr("halving was asked for, but cannot be used: replicas 0 to 2"));
  choice = choose({.count = 10}, {.overrides = "all_reduce=ring"});
  EXPECT_THAT(choice.why, HasSubstr("an order of its own"));
  choice = choose({.count = 10}, {.access = Access::messages, .overrides = "all_reduce=one_pass"});
  EXPECT_THAT(choice.why, HasSubstr("memory that all ranks share"));
}

TEST(ParseOverrides, ReadsRangesAndSuffixes) {
  Overrides out;
  ASSERT_TRUE(
      parse_overrides(" all_reduce = direct : 0-64K , tree:1M-2G ; barrier=shared:-5;", out).ok());
  ASSERT_EQ(out.entries.size(), 3U);
  EXPECT_EQ(out.entries[0].algorithm, "direct");
  EXPECT_EQ(out.entries[0].from, 0U);
  EXPECT_EQ(out.entries[0].to, 64U << 10);
  EXPECT_EQ(out.entries[1].from, 1U << 20);
  EXPECT_EQ(out.entries[1].to, 2ULL << 30);
  EXPECT_EQ(out.entries[2].kind, Kind::barrier);
  EXPECT_EQ(out.entries[2].to, 5U);
  ASSERT_TRUE(parse_overrides("", out).ok());
  EXPECT_TRUE(out.entries.empty());
}

TEST(ParseOverrides, SaysWhereATextIsWrong) {
  const auto error = [](const char* text) {
    Overrides out{.entries = {{.kind = Kind::barrier, .algorithm = "kept"}}};
    const Status status = parse_overrides(text, out);
    EXPECT_FALSE(status.ok()) << text;
    EXPECT_EQ(status.kind(), ErrorKind::invalid_usage);
    EXPECT_EQ(out.entries.size(), 1U) << "a bad text changes nothing";
    return status.message();
  };
  EXPECT_THAT(error("allreduce=direct"), HasSubstr("at offset 0: expected a collective"));
  EXPECT_THAT(error("allreduce=direct"), HasSubstr("found \"allreduce\""));
  EXPECT_THAT(error("all_reduce"), HasSubstr("at offset 10: expected '=', found the end"));
  EXPECT_THAT(error("all_reduce=quick"),
              HasSubstr("at offset 11: expected an algorithm of all_reduce (direct, "));
  EXPECT_THAT(error("all_reduce=direct:x"), HasSubstr("at offset 18: expected a size"));
  EXPECT_THAT(error("all_reduce=direct:5"), HasSubstr("at offset 19: expected '-'"));
  EXPECT_THAT(error("all_reduce=direct:5Q-"), HasSubstr("at offset 18: expected a size"));
  EXPECT_THAT(error("all_reduce=direct:9-4"), HasSubstr("at offset 20: expected a size above"));
  EXPECT_THAT(error("all_reduce=direct:0-99999999999G"), HasSubstr("offset 20"));
  EXPECT_THAT(error("all_reduce=direct 7"), HasSubstr("at offset 18: expected ',' or ';'"));
  EXPECT_THAT(error("all_reduce=,"), HasSubstr("at offset 11: expected an algorithm"));
  EXPECT_THAT(error(";"), HasSubstr("at offset 0: expected a collective"));
}

}  // namespace
}  // namespace lockstep::plan
