// The checker must reject plans with planted bugs: each test mutates right plans in one place.
#include "plan/check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace lockstep::plan {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

struct Case {
  Request request;
  Layout layout;
  std::vector<Plan> plans;
};

Case make(Kind kind, const char* name, const Layout& layout, Request request = {}) {
  request.kind = kind;
  const Algorithm* algorithm = find_algorithm(kind, name);
  return {request, layout, make_all(*algorithm, request, layout)};
}

Case all_reduce(const char* name, int ranks, const Request& request = {.count = 8}) {
  return make(Kind::all_reduce, name, Layout::uniform(ranks), request);
}

std::string problem_of(const Case& c, const CheckOptions& options = {}) {
  return check(c.request, c.layout, c.plans, options).problem;
}

/// Whatever the interleaving.
void expect_rejected(const Case& c, Aliasing aliasing = Aliasing::separate) {
  for (unsigned seed = 1; seed < 20; ++seed) {
    EXPECT_THAT(problem_of(c, {.aliasing = aliasing, .seed = seed}), Not(IsEmpty())) << seed;
  }
}

Instruction* find(Plan& plan, Verb verb, int occurrence = 0) {
  for (Instruction& code : plan.code) {
    if (code.verb == verb && occurrence-- == 0) return &code;
  }
  return nullptr;
}

Instruction& last(Plan& plan, Verb verb) {
  return *std::find_if(plan.code.rbegin(), plan.code.rend(),
                       [verb](const Instruction& code) { return code.verb == verb; });
}

void erase(Plan& plan, const Instruction* code) {
  plan.code.erase(plan.code.begin() + (code - plan.code.data()));
}

template <class Predicate>
void erase_if(Plan& plan, Predicate predicate) {
  plan.code.erase(std::remove_if(plan.code.begin(), plan.code.end(), predicate), plan.code.end());
}

TEST(Check, AcceptsWhatTheMutationsStartFrom) {
  EXPECT_THAT(problem_of(all_reduce("one_pass", 4)), IsEmpty());
  EXPECT_THAT(problem_of(all_reduce("slots", 4)), IsEmpty());
  EXPECT_THAT(problem_of(all_reduce("direct", 4)), IsEmpty());
  EXPECT_THAT(problem_of(all_reduce("doubling", 4)), IsEmpty());
}

TEST(Check, FindsAMissingFinalBarrier) {
  Case c = all_reduce("one_pass", 4);
  for (Plan& plan : c.plans) {
    erase_if(plan, [](const Instruction& code) { return code.stage == 2; });
  }
  expect_rejected(c);
}

TEST(Check, FindsOneRankThatLeavesWithoutWaiting) {
  Case c = all_reduce("one_pass", 4);
  erase_if(c.plans[2],
           [](const Instruction& code) { return code.verb == Verb::await && code.stage == 2; });
  expect_rejected(c);
}

TEST(Check, FindsAnAwaitOfATooEarlyStage) {
  Case c = all_reduce("one_pass", 4);
  for (Plan& plan : c.plans) {
    for (Instruction& code : plan.code) {
      if (code.verb == Verb::await) code.stage = 1;
    }
  }
  expect_rejected(c);
}

TEST(Check, FindsAPublishBeforeTheData) {
  Case c = all_reduce("slots", 3);
  for (Plan& plan : c.plans) {
    std::swap(*find(plan, Verb::copy), *find(plan, Verb::publish));
  }
  expect_rejected(c);
}

TEST(Check, FindsTheReuseOfASingleSlot) {
  const Case c = all_reduce("slots", 3);
  EXPECT_THAT(problem_of(c, {.repetitions = 4, .slots = 2}), IsEmpty());
  EXPECT_THAT(problem_of(c, {.repetitions = 4, .slots = 1}), HasSubstr("at the same time"));
}

TEST(Check, FindsRanksThatDifferInUsingSlots) {
  Case c = all_reduce("slots", 3);
  c.plans[1] = {};
  EXPECT_THAT(problem_of(c), HasSubstr("differ in whether slots are used"));
}

TEST(Check, FindsRanksThatDifferInTheLengthOfSlots) {
  Case c = all_reduce("slots", 3);
  c.plans[1].slot_most += 1;
  EXPECT_THAT(problem_of(c), HasSubstr("elements of slots of"));
  c = all_reduce("slots", 3);
  for (Plan& plan : c.plans) plan.slot_most = plan.slot_count - 1;
  EXPECT_THAT(problem_of(c), HasSubstr("elements of slots of"));
}

TEST(Check, SeesAnotherAssociation) {
  Case c = all_reduce("one_pass", 4);
  EXPECT_EQ(check(c.request, c.layout, c.plans).order, Order::fixed_tree);
  for (Plan& plan : c.plans) {
    const Instruction& code = *find(plan, Verb::reduce);
    const std::uint8_t chain[] = {0, 1, 1, 1};  // ((0+1)+2)+3 instead of (0+1)+(2+3)
    std::copy(std::begin(chain), std::end(chain), plan.merges.begin() + code.merges);
  }
  const Verdict verdict = check(c.request, c.layout, c.plans);
  EXPECT_THAT(verdict.problem, IsEmpty());
  EXPECT_EQ(verdict.order, Order::any);
}

TEST(Check, SeesSwappedSources) {
  Case c = all_reduce("direct", 4);
  for (Plan& plan : c.plans) {
    const Instruction& code = *find(plan, Verb::reduce);
    std::swap(plan.places[code.sources], plan.places[code.sources + 1]);
  }
  const Verdict verdict = check(c.request, c.layout, c.plans);
  EXPECT_THAT(verdict.problem, IsEmpty());
  EXPECT_EQ(verdict.order, Order::any);
}

TEST(Check, FindsRanksWithDifferentSums) {
  Case c = all_reduce("slots", 3);
  const Instruction& code = *find(c.plans[1], Verb::reduce);
  std::swap(c.plans[1].places[code.sources], c.plans[1].places[code.sources + 1]);
  EXPECT_THAT(problem_of(c), HasSubstr("on another rank"));
}

TEST(Check, FindsAReplicaAddedTwice) {
  Case c = all_reduce("one_pass", 3);
  const Instruction& code = *find(c.plans[1], Verb::reduce);
  c.plans[1].places[code.sources] = c.plans[1].places[code.sources + 1];
  EXPECT_THAT(problem_of(c), HasSubstr("not the sum of all replicas"));
}

TEST(Check, FindsADroppedReceive) {
  Case c = all_reduce("direct", 3);
  for (int i = 0; find(c.plans[1], Verb::receive, i) != nullptr; ++i) {
    Case mutated = c;
    erase(mutated.plans[1], find(mutated.plans[1], Verb::receive, i));
    expect_rejected(mutated);
  }
}

TEST(Check, FindsADroppedSend) {
  Case c = all_reduce("doubling", 4);
  erase(c.plans[2], find(c.plans[2], Verb::send));
  expect_rejected(c);
  c = make(Kind::gather, "direct", Layout::uniform(3), {.counts = {1, 1, 1}});
  erase(c.plans[2], find(c.plans[2], Verb::send));
  EXPECT_THAT(problem_of(c), HasSubstr("deadlock: rank 0 waits for rank 2 in operation 0 at "
                                       "instruction 2 (receive 1 elements from rank 2)"));
}

TEST(Check, FindsAMessageNobodyReceives) {
  Case c = make(Kind::broadcast, "tree", Layout::uniform(2), {.count = 4});
  c.plans[0].code.push_back(*find(c.plans[0], Verb::send));
  EXPECT_THAT(problem_of(c, {.repetitions = 1}),
              HasSubstr("rank 0 waits at the end of operation 0 for rank 1 to receive"));
}

TEST(Check, FindsASendOfTheWrongLength) {
  Case c = all_reduce("direct", 3);
  --find(c.plans[1], Verb::send)->count;
  EXPECT_THAT(problem_of(c), HasSubstr("does not fit rank 1"));
}

TEST(Check, FindsADeadlockThroughDrains) {
  Case c = all_reduce("doubling", 2);
  for (int rank = 0; rank < 2; ++rank) {
    Plan& plan = c.plans[static_cast<std::size_t>(rank)];
    const Instruction drain{.verb = Verb::drain, .peer = 1 - rank};
    plan.code.insert(plan.code.begin() + 1, drain);
  }
  const std::string problem = problem_of(c);
  EXPECT_THAT(problem, HasSubstr("deadlock"));
  EXPECT_THAT(problem, HasSubstr("rank 0 waits for rank 1 in operation 0 at instruction 1 (drain"));
  EXPECT_THAT(problem, HasSubstr("rank 1 waits for rank 0"));
}

TEST(Check, FindsAnOverwriteWhileAMessageIsOnItsWay) {
  Case c = all_reduce("doubling", 2);
  for (Plan& plan : c.plans) erase(plan, find(plan, Verb::drain));
  EXPECT_THAT(problem_of(c, {.aliasing = Aliasing::separate}), IsEmpty());
  expect_rejected(c, Aliasing::in_place);
}

TEST(Check, FindsAMissingDrainBeforeABankIsReused) {
  Case c = make(Kind::reduce, "tree", Layout::uniform(2, 2), {.count = 9, .chunk = 2});
  ASSERT_NE(find(c.plans[1], Verb::drain), nullptr);
  EXPECT_THAT(problem_of(c), IsEmpty());
  erase_if(c.plans[1], [](const Instruction& code) { return code.verb == Verb::drain; });
  expect_rejected(c);
}

TEST(Check, FindsAMissingFinish) {
  Case c = all_reduce("direct", 3);
  last(c.plans[2], Verb::reduce).finish = false;
  EXPECT_THAT(problem_of(c), HasSubstr("not finished"));
}

TEST(Check, FindsASumFinishedTwice) {
  Case c = all_reduce("halving", 4);
  find(c.plans[2], Verb::reduce)->finish = true;
  EXPECT_THAT(problem_of(c), HasSubstr("is finished"));
}

TEST(Check, FindsARoundedPartialSum) {
  Case c = all_reduce("doubling", 4, {.count = 5, .accumulator = Accumulator::wide});
  EXPECT_THAT(problem_of(c), IsEmpty());
  Plan& plan = c.plans[0];
  Place& target = plan.places[find(plan, Verb::reduce)->targets];
  target.buffer = Buffer::scratch;
  plan.scratch_count = 100;
  EXPECT_THAT(problem_of(c), HasSubstr("as a rounded value"));
  c.request.accumulator = Accumulator::same;
  target.buffer = Buffer::partial;
  EXPECT_THAT(problem_of(c), IsEmpty());
}

TEST(Check, FindsAMessageBetweenForms) {
  Case c = all_reduce("doubling", 4, {.count = 5, .accumulator = Accumulator::wide});
  Plan& plan = c.plans[0];
  plan.places[find(plan, Verb::receive, 1)->targets].buffer = Buffer::scratch;
  plan.scratch_count = 100;
  EXPECT_THAT(problem_of(c), HasSubstr("mixes values and partial sums"));
}

TEST(Check, FindsAFinishedPartialSum) {
  Case c = all_reduce("doubling", 2);
  Plan& plan = c.plans[0];
  plan.places[find(plan, Verb::reduce)->targets].buffer = Buffer::partial;
  plan.partial_count = 8;
  EXPECT_THAT(problem_of(c), HasSubstr("finished value as a partial sum"));
}

TEST(Check, FindsMemoryNeverWritten) {
  Case c = all_reduce("direct", 3);
  c.plans[1].scratch_count += 100;
  Plan& plan = c.plans[1];
  plan.places[find(plan, Verb::reduce)->sources].offset += 50;
  plan.places[find(plan, Verb::reduce)->sources].buffer = Buffer::scratch;
  plan.places[find(plan, Verb::reduce)->sources].rank = 1;
  EXPECT_THAT(problem_of(c), HasSubstr("never written"));
}

TEST(Check, FindsDataInTheWrongPlace) {
  Case c = make(Kind::broadcast, "tree", Layout::uniform(2), {.count = 4, .chunk = 2});
  Plan& plan = c.plans[1];
  std::swap(plan.places[find(plan, Verb::receive, 0)->targets],
            plan.places[find(plan, Verb::receive, 1)->targets]);
  EXPECT_THAT(problem_of(c), HasSubstr("output element 0 is not element 0 of rank 0"));
}

TEST(Check, FindsARootThatLeavesEarly) {
  Case c = make(Kind::broadcast, "shared", Layout::uniform(3), {.count = 4});
  erase(c.plans[0], &last(c.plans[0], Verb::await));
  EXPECT_THAT(problem_of(c), HasSubstr("at the same time"));
}

TEST(Check, FindsAWriterThatIsNotAwaited) {
  Case c = make(Kind::gather, "shared", Layout::uniform(3), {.counts = {2, 2, 2}});
  EXPECT_THAT(problem_of(c), IsEmpty());
  erase(c.plans[0], &last(c.plans[0], Verb::await));
  EXPECT_THAT(problem_of(c), HasSubstr("rank 0"));
}

TEST(Check, FindsABarrierThatIsNone) {
  Case c = make(Kind::barrier, "dissemination", Layout::uniform(5));
  EXPECT_THAT(problem_of(c), IsEmpty());
  for (Plan& plan : c.plans) plan.code.resize(plan.code.size() - 2);
  EXPECT_THAT(problem_of(c), HasSubstr("leaves the barrier without knowing"));
}

TEST(Check, FindsASendThatIsOverBeforeTheReceiverHasCome) {
  Case c = make(Kind::send_receive, "direct", Layout::uniform(2), {.count = 5, .to = 1});
  EXPECT_THAT(problem_of(c), IsEmpty());
  for (Plan& plan : c.plans) plan.code.pop_back();  // the answer
  EXPECT_THAT(problem_of(c), HasSubstr("leaves the send_receive without knowing that rank 1"));
}

TEST(Check, FindsStagesThatDoNotGrow) {
  Case c = all_reduce("one_pass", 2);
  last(c.plans[1], Verb::publish).stage = 1;
  EXPECT_THAT(problem_of(c), HasSubstr("stage 1 after 1"));
}

TEST(Check, FindsMoreStagesThanAFlagHolds) {
  Case c = all_reduce("one_pass", 2);
  last(c.plans[1], Verb::publish).stage = kStages;
  EXPECT_THAT(problem_of(c), HasSubstr("stage 1048576 of at most 1048575"));
}

TEST(Check, FindsAnAwaitThatNeverEnds) {
  Case c = all_reduce("one_pass", 2);
  last(c.plans[1], Verb::await).stage = 3;
  EXPECT_THAT(problem_of(c), HasSubstr("deadlock: rank 0 waits for rank 1"));
}

TEST(Check, FindsSharedMemoryInAnAlgorithmOfMessages) {
  Algorithm claims = *find_algorithm(Kind::all_reduce, "one_pass");
  EXPECT_THAT(check(claims, {.count = 4}, Layout::uniform(2)).problem, IsEmpty());
  claims.access = Access::messages;
  EXPECT_THAT(check(claims, {.count = 4}, Layout::uniform(2)).problem, HasSubstr("shared memory"));
}

// Malformed plans are a problem, not undefined behaviour.
TEST(Check, FindsMalformedInstructions) {
  const auto after = [](auto&& mutate) {
    Case c = all_reduce("doubling", 2);
    Plan& plan = c.plans[0];
    mutate(plan, *find(plan, Verb::send), *find(plan, Verb::receive), *find(plan, Verb::reduce));
    return problem_of(c);
  };
  using I = Instruction;
  EXPECT_THAT(after([](Plan&, I& send, I&, I&) { send.peer = 2; }), HasSubstr("no such rank"));
  EXPECT_THAT(after([](Plan&, I& send, I&, I&) { send.peer = -1; }), HasSubstr("no such rank"));
  EXPECT_THAT(after([](Plan&, I& send, I&, I&) { send.peer = 0; }), HasSubstr("the rank itself"));
  EXPECT_THAT(after([](Plan&, I& send, I&, I&) { send.count = 0; }), HasSubstr("empty message"));
  EXPECT_THAT(after([](Plan&, I& send, I&, I&) { send.count = UINT64_MAX; }),
              HasSubstr("of a buffer"));
  EXPECT_THAT(after([](Plan&, I& send, I&, I&) { send.sources = UINT32_MAX; }),
              HasSubstr("places"));
  EXPECT_THAT(after([](Plan&, I&, I& receive, I&) { receive.target_count = 0; }),
              HasSubstr("one target"));
  EXPECT_THAT(
      after([](Plan& p, I&, I& receive, I&) { p.places[receive.targets].offset = UINT64_MAX; }),
      HasSubstr("of a buffer"));
  EXPECT_THAT(after([](Plan& p, I&, I& receive, I&) { p.places[receive.targets].rank = 1; }),
              HasSubstr("own memory"));
  EXPECT_THAT(
      after([](Plan& p, I&, I& receive, I&) { p.places[receive.targets].buffer = Buffer::input; }),
      HasSubstr("never written"));
  EXPECT_THAT(after([](Plan& p, I&, I&, I& reduce) { p.places[reduce.sources].index = 1; }),
              HasSubstr("no such input"));
  EXPECT_THAT(after([](Plan& p, I&, I&, I& reduce) { p.places[reduce.sources].rank = 7; }),
              HasSubstr("no rank"));
  EXPECT_THAT(after([](Plan& p, I&, I&, I& reduce) { p.places[reduce.sources + 1].rank = 1; }),
              HasSubstr("another rank"));
  EXPECT_THAT(after([](Plan& p, I&, I&, I& reduce) { p.merges[reduce.merges + 1] = 0; }),
              HasSubstr("several values"));
  EXPECT_THAT(after([](Plan& p, I&, I&, I& reduce) { p.merges[reduce.merges] = 1; }),
              HasSubstr("more values than there are"));
  EXPECT_THAT(after([](Plan&, I&, I&, I& reduce) { reduce.merges = UINT32_MAX; }),
              HasSubstr("merges"));
  EXPECT_THAT(after([](Plan&, I&, I&, I& reduce) { reduce.source_count = 0; }),
              HasSubstr("sources and targets"));
  EXPECT_THAT(after([](Plan&, I& send, I&, I&) { send.verb = static_cast<Verb>(99); }),
              HasSubstr("unknown verb"));
}

TEST(Check, FindsOverlappingPlaces) {
  Case c = all_reduce("doubling", 2);
  Plan& plan = c.plans[0];
  plan.places[find(plan, Verb::reduce)->sources + 1] = {
      .rank = 0, .buffer = Buffer::output, .offset = 1};
  for (Instruction& code : plan.code) code.count = std::min<std::uint64_t>(code.count, 7);
  EXPECT_THAT(problem_of(c), HasSubstr("overlaps a source"));
}

TEST(Check, FindsAMalformedRequest) {
  Case c = all_reduce("direct", 2);
  c.plans.pop_back();
  EXPECT_THAT(problem_of(c), HasSubstr("1 plans for 2 ranks"));
  c = make(Kind::broadcast, "tree", Layout::uniform(2), {.count = 1});
  c.request.root = 2;
  EXPECT_THAT(problem_of(c), HasSubstr("no rank 2"));
  c = make(Kind::gather, "direct", Layout::uniform(2), {.counts = {1, 1}});
  c.request.counts.push_back(1);
  EXPECT_THAT(problem_of(c), HasSubstr("3 counts for 2 ranks"));
  c.request.counts.pop_back();
  EXPECT_THAT(problem_of(c, {.aliasing = Aliasing::in_place}), HasSubstr("no in-place form"));
}

}  // namespace
}  // namespace lockstep::plan
