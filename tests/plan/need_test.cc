// Every instruction of every plan is needed: without any one of them the checker finds a problem.
// This shows both that plans carry nothing useless and that the checker misses nothing missing.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "plan/check.h"
#include "plan/form.h"
#include "plan/sweep.h"

namespace lockstep::plan {
namespace {

bool proven(const Request& request, const Layout& layout, const std::vector<Plan>& plans) {
  for (const Aliasing aliasing : {Aliasing::separate, Aliasing::in_place}) {
    if (aliasing == Aliasing::in_place && !allows_in_place(request.kind)) continue;
    if (!check(request, layout, plans, {.aliasing = aliasing}).problem.empty()) return false;
  }
  return true;
}

Request request_for(Kind kind, const Layout& layout) {
  Request request{.kind = kind, .count = 11, .root = layout.ranks() - 1, .chunk = 2};
  request.to = 1 % layout.ranks();
  for (int rank = 0; rank < layout.ranks(); ++rank) {
    request.counts.push_back(static_cast<std::uint64_t>(3 + rank));
  }
  return request;
}

/// An await is content with a later stage: of two publishes the first only lets peers go on sooner.
/// And a drain of the direct reduce-scatter is sometimes implied by a piece that came from the
/// peer.
bool may_be_left_out(const Algorithm& algorithm, const Plan& plan, std::size_t index) {
  if (plan.code[index].verb == Verb::drain) return algorithm.kind == Kind::reduce_scatter;
  if (plan.code[index].verb != Verb::publish) return false;
  for (std::size_t i = index + 1; i < plan.code.size(); ++i) {
    if (plan.code[i].verb == Verb::publish) return true;
  }
  return false;
}

class Need : public testing::TestWithParam<Algorithm> {};

TEST_P(Need, EveryInstruction) {
  const Algorithm& algorithm = GetParam();
  const Layout layouts[] = {Layout::uniform(2), Layout::uniform(3), Layout::uniform(4, 2),
                            Layout({1, 3, 2, 1}, {0, 0, 1, 1}), Layout::uniform(5)};
  for (const Layout& layout : layouts) {
    const Request request = request_for(algorithm.kind, layout);
    if (!algorithm.refuses(request, layout).empty()) continue;
    const std::vector<Plan> plans = make_all(algorithm, request, layout);
    ASSERT_TRUE(proven(request, layout, plans));
    for (std::size_t rank = 0; rank < plans.size(); ++rank) {
      for (std::size_t i = 0; i < plans[rank].code.size(); ++i) {
        if (may_be_left_out(algorithm, plans[rank], i)) continue;
        std::vector<Plan> mutated = plans;
        mutated[rank].code.erase(mutated[rank].code.begin() + static_cast<std::ptrdiff_t>(i));
        EXPECT_FALSE(proven(request, layout, mutated))
            << describe(algorithm, request, layout, Aliasing::separate) << ": rank " << rank
            << " does not need " << describe(plans[rank], i);
      }
    }
  }
}

std::string name_of(const testing::TestParamInfo<Algorithm>& info) {
  return fmt::format("{}_{}", to_string(info.param.kind), info.param.name);
}

INSTANTIATE_TEST_SUITE_P(Algorithms, Need,
                         testing::ValuesIn(algorithms().begin(), algorithms().end()), name_of);

}  // namespace
}  // namespace lockstep::plan
