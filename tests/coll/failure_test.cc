// What happens when ranks disagree, leave, stall, throw or abort: the same cause on every rank, in
// time.
#include <gmock/gmock.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "tests/coll/fixtures.h"

namespace lockstep::coll {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using namespace std::chrono_literals;

/// Where each rank was when it heard of it is its own; the rest of the text is not.
std::string cause_in(const Error& e) {
  const std::string text = e.what();
  return text.substr(0, text.rfind("\nrank "));
}

/// Every rank threw E, with the same cause and the same culprits. Returns one of them.
template <class E>
E same_everywhere(const std::vector<std::exception_ptr>& thrown) {
  const E* first = as<E>(thrown[0]);
  if (first == nullptr) throw std::logic_error("rank 0 did not throw the expected kind");
  E kept = *first;
  for (std::size_t rank = 0; rank < thrown.size(); ++rank) {
    const E* e = as<E>(thrown[rank]);
    if (e == nullptr) {
      ADD_FAILURE() << "rank " << rank << " threw something else, or nothing";
      continue;
    }
    EXPECT_EQ(cause_in(*e), cause_in(kept)) << "rank " << rank;
    EXPECT_EQ(e->culprits(), kept.culprits()) << "rank " << rank;
  }
  return kept;
}

struct Disagreement {
  const char* name;
  std::function<void(Session&)> odd;  // what rank 2 does
  std::vector<const char*> words;
};

class Disagreements : public testing::TestWithParam<Disagreement> {};

TEST_P(Disagreements, IsFoundBeforeDataIsMixed) {
  // Shared memory and messages, small and large.
  for (const char* algorithms :
       {"", "all_reduce=halving", "all_reduce=direct", "all_reduce=tree"}) {
    for (const std::size_t count : {4, 100'000}) {
      SessionOptions options;
      options.algorithms = algorithms;
      std::vector<std::vector<float>> data(4);
      const auto thrown = outcomes(
          4,
          [&](Session& group) {
            auto& x = data[static_cast<std::size_t>(group.rank())];
            x.assign(count, static_cast<float>(group.rank() + 1));
            if (group.rank() == 2) {
              GetParam().odd(group);
            } else {
              group.all_reduce(Op::sum, std::span(x), {.name = "conv1.weight"});
            }
          },
          options);
      const Mismatch e = same_everywhere<Mismatch>(thrown);
      EXPECT_EQ(e.code(), Code::invalid_argument);
      EXPECT_THAT(e.culprits(), testing::Contains(2));
      for (const char* word : GetParam().words) EXPECT_THAT(e.what(), HasSubstr(word));
      EXPECT_THAT(e.what(), HasSubstr("conv1.weight"));
      EXPECT_THAT(e.what(), HasSubstr("rank 2: "));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, Disagreements,
                         testing::Values(Disagreement{"Kind",
                                                      [](Session& group) {
                                                        std::vector<float> x(4);
                                                        group.broadcast(std::span(x), Root{1});
                                                      },
                                                      {"rank 2: broadcast float32[4] root 1"}},
                                         Disagreement{"Dtype",
                                                      [](Session& group) {
                                                        std::vector<double> x(4);
                                                        group.all_reduce(Op::sum, std::span(x));
                                                      },
                                                      {"all_reduce sum float64[4]"}},
                                         Disagreement{"Count",
                                                      [](Session& group) {
                                                        std::vector<float> x(3);
                                                        group.all_reduce(Op::sum, std::span(x));
                                                      },
                                                      {"float32[3]"}},
                                         Disagreement{"Op",
                                                      [](Session& group) {
                                                        std::vector<float> x(100'000);
                                                        group.all_reduce(Op::max, std::span(x));
                                                      },
                                                      {"all_reduce max"}},
                                         Disagreement{"Barrier",
                                                      [](Session& group) { group.barrier(); },
                                                      {"rank 2: barrier"}},
                                         Disagreement{"Order",
                                                      [](Session& group) {
                                                        std::vector<float> x(9);
                                                        std::vector<float> y(36);
                                                        group.all_gather(std::span(x),
                                                                         std::span(y));
                                                      },
                                                      {"all_gather float32[9]"}}),
                         [](const auto& each) { return each.param.name; });

TEST(Mismatch, ShapesOfEqualSizeDisagree) {
  const auto thrown = outcomes(2, [](Session& group) {
    std::vector<float> x(6);
    const std::int64_t wide[] = {2, 3};
    const std::int64_t tall[] = {3, 2};
    group.all_reduce(Op::sum, std::span(x), {.shape = group.rank() == 0 ? wide : tall});
  });
  same_everywhere<Mismatch>(thrown);
}

TEST(Mismatch, TensorsOfOneShapeInAnotherOrderAreNotMixed) {
  for (const std::size_t count : {4, 100'000}) {
    const auto thrown = outcomes(3, [&](Session& group) {
      std::vector<float> x(count);
      const bool other = group.rank() == 2;
      group.all_reduce(Op::sum, std::span(x), {.name = other ? "bias" : "weight"});
      group.all_reduce(Op::sum, std::span(x), {.name = other ? "weight" : "bias"});
    });
    const Mismatch e = same_everywhere<Mismatch>(thrown);
    EXPECT_THAT(e.culprits(), ElementsAre(2));
    EXPECT_THAT(e.what(), HasSubstr("\"weight\""));
    EXPECT_THAT(e.what(), HasSubstr("\"bias\""));
  }
}

TEST(Failure, SaysWhatThisRankHadAskedForAndWhere) {
  const auto thrown = outcomes(2, [&](Session& group) {
    std::vector<float> x(3);
    if (group.rank() == 1) {
      group.abandon("no more data");
    } else {
      group.all_reduce(Op::sum, std::span(x), {.name = "conv1.weight"});
    }
  });
  const PeerLost* e = as<PeerLost>(thrown[0]);
  ASSERT_NE(e, nullptr);
  EXPECT_THAT(e->what(), HasSubstr("rank 1 cannot go on: no more data"));
  EXPECT_THAT(e->what(), HasSubstr("rank 0 had asked for operation 1 (all_reduce sum float32[3] "
                                   "\"conv1.weight\") at "));
  EXPECT_THAT(e->what(), HasSubstr("failure_test.cc:"));
}

TEST(Mismatch, WhatTravelsDisagrees) {
  for (const std::size_t count : {4, 100'000}) {
    const auto thrown = outcomes(3, [&](Session& group) {
      std::vector<float> x(count);
      const WireType wire = group.rank() == 2 ? WireType::bf16 : WireType::same;
      group.all_reduce(Op::sum, std::span(x), {.wire = wire});
      group.barrier();  // the part of one may be over before the others disagree
    });
    const Mismatch e = same_everywhere<Mismatch>(thrown);
    EXPECT_THAT(e.culprits(), ElementsAre(2));
    EXPECT_THAT(e.what(), HasSubstr("rank 2: all_reduce sum float32"));
    EXPECT_THAT(e.what(), HasSubstr("as bfloat16"));
  }
}

TEST(Mismatch, RoundedSumsAreNotSumsOfTheRoundType) {
  const auto thrown = outcomes(2, [](Session& group) {
    std::vector<float> wide(64);
    std::vector<BFloat16> narrow(64);
    if (group.rank() == 0) {
      group.all_reduce(Op::sum, std::span(wide), {.wire = WireType::bf16});
    } else {
      group.all_reduce(Op::sum, std::span(narrow));
    }
  });
  same_everywhere<Mismatch>(thrown);
}

TEST(Mismatch, RootsDisagree) {
  const auto thrown = outcomes(3, [](Session& group) {
    std::vector<float> x(6);
    group.broadcast(std::span(x), Root{group.rank() == 1 ? 2 : 0});
    group.barrier();  // rank 2's part of the broadcast may be over before the others disagree
  });
  const Mismatch e = same_everywhere<Mismatch>(thrown);
  EXPECT_THAT(e.culprits(), ElementsAre(1));
}

TEST(Mismatch, BatchesWithOtherPiecesDisagree) {
  const auto thrown = outcomes(2, [](Session& group) {
    std::vector<float> x(6);
    Batch batch = group.batch();
    const std::size_t cut = group.rank() == 0 ? 2 : 3;
    batch.all_reduce(Op::sum, std::span(x).first(cut));
    batch.all_reduce(Op::sum, std::span(x).subspan(cut));
    batch.run();
  });
  same_everywhere<Mismatch>(thrown);
}

TEST(Mismatch, IsFoundInACallThatRepeatsTheOneBefore) {
  for (const std::size_t count : {4, 64, 1000}) {
    const auto thrown = outcomes(3, [&](Session& group) {
      std::vector<float> x(count, 1);
      for (int i = 0; i < 40; ++i) group.all_reduce(Op::sum, std::span(x));
      // Rank 1 goes another way; the others repeat.
      if (group.rank() == 1) {
        group.all_reduce(Op::max, std::span(x));
      } else {
        group.all_reduce(Op::sum, std::span(x));
      }
    });
    const Error kept = same_everywhere<Mismatch>(thrown);
    EXPECT_EQ(kept.culprits(), std::vector<int>{1}) << count;
  }
}

TEST(Failure, IsStickyAndLaterCallsThrowAtOnce) {
  outcomes(3, [](Session& group) {
    std::vector<float> x(group.rank() == 1 ? 5 : 4);
    EXPECT_THROW(group.all_reduce(Op::sum, std::span(x)), Mismatch);
    EXPECT_THROW(group.barrier(), Mismatch);
    EXPECT_THROW(group.check(), Mismatch);
    EXPECT_THROW(group.start_barrier().wait(), Mismatch);
    Work work = group.start_all_reduce(Op::sum, std::span(x));
    EXPECT_THROW(static_cast<void>(work.wait_for(10s)), Mismatch);
  });
}

TEST(Failure, APeerThatLeavesIsNamed) {
  for (const char* algorithms : {"", "all_reduce=doubling"}) {
    SessionOptions options;
    options.algorithms = algorithms;
    std::vector<std::exception_ptr> thrown(3);
    Hub hub;
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < 3; ++rank) {
      threads.emplace_back([&, rank] {
        Session group = hub.join({.size = 3, .rank = rank, .options = options});
        std::vector<float> x(10'000);
        try {
          // The others may notice while a slow one is still in the operation before.
          group.all_reduce(Op::sum, std::span(x));
          if (rank == 1) return;
          for (;;) group.all_reduce(Op::sum, std::span(x));
        } catch (...) {
          thrown[static_cast<std::size_t>(rank)] = std::current_exception();
        }
      });
    }
    threads.clear();
    EXPECT_FALSE(thrown[1]);
    thrown.erase(thrown.begin() + 1);
    const PeerLost e = same_everywhere<PeerLost>(thrown);
    EXPECT_EQ(e.code(), Code::failed_precondition);
    EXPECT_THAT(e.culprits(), ElementsAre(1));
    EXPECT_THAT(e.what(), HasSubstr("rank 1 has left the group"));
    EXPECT_THAT(e.what(), HasSubstr("it finished at operation 1, this rank asked for 2"));
    EXPECT_THAT(e.what(), HasSubstr("all_reduce sum float32[10000]"));
  }
}

TEST(Failure, AMessageToARankThatHasLeftNamesIt) {
  Hub hub;
  std::jthread leaving([&] { static_cast<void>(hub.join({.size = 2, .rank = 1})); });
  Session group = hub.join({.size = 2, .rank = 0});
  std::vector<float> x(3);
  try {
    group.send(std::span(x), To{1});
    ADD_FAILURE();
  } catch (const PeerLost& e) {
    EXPECT_THAT(e.culprits(), ElementsAre(1));
    EXPECT_THAT(e.what(), HasSubstr("send_receive float32[3]"));
  }
}

TEST(Failure, ClosingWithUnfinishedOperationsEndsTheGeneration) {
  Hub hub;
  std::exception_ptr thrown;
  std::jthread other([&] {
    Session group = hub.join({.size = 2, .rank = 1});
    std::vector<float> x(1);
    try {
      group.send(std::span(x), To{0});
      for (;;) group.barrier();
    } catch (...) {
      thrown = std::current_exception();
    }
  });
  std::vector<float> buffer(100);
  std::vector<float> go(1);
  std::optional<Work> work;
  {
    Session group = hub.join({.size = 2, .rank = 0});
    group.receive(std::span(go), From{1});
    // Nobody will ever send this.
    work = group.start_receive(std::span(buffer), From{1});
  }
  EXPECT_THROW(work->wait(), Cancelled);
  other.join();
  const Cancelled* e = as<Cancelled>(thrown);
  ASSERT_NE(e, nullptr);
  EXPECT_THAT(e->what(), HasSubstr("rank 0 closed its session with 1 operation(s) unfinished"));
}

TEST(Failure, AMissingRankTimesOutByName) {
  const auto start = std::chrono::steady_clock::now();
  std::atomic<int> waiting = 2;
  const auto thrown = outcomes(3, [&](Session& group) {
    std::vector<float> x(4);
    if (group.rank() == 1) {
      while (waiting.load() > 0) std::this_thread::yield();
      group.check();
    } else {
      try {
        group.all_reduce(Op::sum, std::span(x), {.name = "bias", .timeout = 200ms});
      } catch (...) {
        waiting.fetch_sub(1);
        throw;
      }
    }
  });
  const Timeout e = same_everywhere<Timeout>(thrown);
  EXPECT_EQ(e.code(), Code::deadline_exceeded);
  EXPECT_THAT(e.culprits(), ElementsAre(1));
  EXPECT_THAT(e.what(), HasSubstr("waiting for other workers: rank 1"));
  EXPECT_THAT(e.what(), HasSubstr("\"bias\""));
  EXPECT_THAT(e.what(), HasSubstr("failure_test.cc"));
  EXPECT_GE(std::chrono::steady_clock::now() - start, 200ms);
  EXPECT_LT(std::chrono::steady_clock::now() - start, 20s);
}

TEST(Failure, TheProgressTimeoutEndsAStalledOperationAndStallsAreReported) {
  std::string logged;
  std::mutex mutex;
  set_log_level(LogLevel::info);
  set_log_sink([&](LogLevel, std::string_view text) {
    const std::lock_guard lock(mutex);
    logged += text;
    logged += '\n';
  });
  SessionOptions options;
  options.progress_timeout = 300ms;
  options.stall_report = 50ms;
  std::atomic<bool> over = false;
  const auto thrown = outcomes(
      2,
      [&](Session& group) {
        if (group.rank() == 1) {
          while (!over.load()) std::this_thread::yield();
          group.check();
        }
        try {
          group.barrier();
        } catch (...) {
          over = true;
          throw;
        }
      },
      options);
  set_log_sink({});
  set_log_level(LogLevel::warning);
  same_everywhere<Timeout>(thrown);
  EXPECT_THAT(logged, Not(HasSubstr("timed out"))) << "it is thrown, not logged besides";
  EXPECT_THAT(logged, HasSubstr("rank 0 has waited"));
  EXPECT_THAT(logged, HasSubstr("in operation 1 (barrier) for rank 1"));
  EXPECT_THAT(logged, HasSubstr("last operations of rank 0"));
}

TEST(Failure, AnAsynchronousTimeoutBehindAStuckOperation) {
  std::atomic<bool> over = false;
  outcomes(2, [&](Session& group) {
    if (group.rank() == 1) {
      while (!over.load()) std::this_thread::yield();
      return;
    }
    Work stuck = group.start_barrier();
    EXPECT_THROW(group.barrier({.timeout = 100ms}), Timeout);
    EXPECT_THROW(stuck.wait(), Timeout);
    over = true;
  });
}

TEST(Failure, AnExceptionOnOneRankEndsTheOthersWaitsAndIsPassedOn) {
  struct Mine : std::runtime_error {
    using std::runtime_error::runtime_error;
  };
  std::atomic<int> woken = 0;
  EXPECT_THROW(run_ranks(4,
                         [&](Session& group) {
                           if (group.rank() == 3) throw Mine("out of cheese");
                           try {
                             group.barrier();
                           } catch (const Cancelled& e) {
                             EXPECT_THAT(e.what(),
                                         HasSubstr("rank 3 aborted the group: out of cheese"));
                             EXPECT_THAT(e.culprits(), ElementsAre(3));
                             woken.fetch_add(1);
                             throw;
                           }
                         }),
               Mine);
  EXPECT_EQ(woken.load(), 3);
}

TEST(Failure, InASubgroupEndsTheWholeGeneration) {
  const auto thrown = outcomes(4, [](Session& group) {
    Session part = group.split({.color = group.rank() / 2});
    std::vector<float> x(group.rank() == 3 ? 2 : 1);
    if (group.rank() >= 2) part.all_reduce(Op::sum, std::span(x));
    group.barrier();
  });
  const Mismatch e = same_everywhere<Mismatch>(thrown);
  EXPECT_THAT(e.culprits(), ElementsAre(2, 3));
  EXPECT_THAT(e.what(), HasSubstr("rank 3: all_reduce sum float32[2]"));
}

TEST(Failure, BuffersAreTheCallersAgainOnceTheCallHasThrown) {
  // One rank aborts while others are in the middle of each other's memory; whoever has thrown frees
  // its buffers at once. AddressSanitizer and ThreadSanitizer see it if a peer is still there.
  for (const char* algorithms : {"", "all_reduce=halving"}) {
    SessionOptions options;
    options.algorithms = algorithms;
    for (int round = 0; round < 20; ++round) {
      const auto thrown = outcomes(
          4,
          [&](Session& group) {
            for (int i = 0;; ++i) {
              auto x = std::make_unique<std::vector<float>>(200'000, 1.0F);
              if (group.rank() == 3 && i == round % 3) group.abort("enough");
              group.all_reduce(Op::sum, std::span(*x));
            }
          },
          options);
      same_everywhere<Cancelled>(thrown);
    }
  }
}

TEST(Failure, ASubgroupOutlivesTheGroupItWasSplitFrom) {
  run_ranks(4, [](Session& group) {
    Session part = group.split({.color = group.rank() / 2});
    { const Session closed = std::move(group); }
    for (int i = 0; i < 200; ++i) {
      std::vector<int> x(10, 1);
      part.all_reduce(Op::sum, std::span(x));
      ASSERT_EQ(x[0], 2);
      if (part.rank() == 0) std::this_thread::yield();
    }
  });
}

TEST(Failure, TheDeadlineOfAStartedCallCountsFromItsStart) {
  std::atomic<bool> over = false;
  outcomes(2, [&](Session& group) {
    if (group.rank() == 1) {
      while (!over.load()) std::this_thread::yield();
      return;
    }
    std::vector<float> x(1);
    const auto start = std::chrono::steady_clock::now();
    Work first = group.start_all_reduce(Op::sum, std::span(x), {.timeout = 1s});
    Work second = group.start_barrier({.timeout = 1s});
    EXPECT_THROW(second.wait(), Timeout);
    EXPECT_THROW(first.wait(), Timeout);
    EXPECT_LT(std::chrono::steady_clock::now() - start, 1900ms);
    over = true;
  });
}

TEST(Failure, TimeoutsWithoutEndAreAllowed) {
  SessionOptions patient;
  patient.progress_timeout = std::chrono::nanoseconds::max();
  patient.stall_report = std::chrono::nanoseconds::max();
  run_ranks(
      2,
      [](Session& group) {
        if (group.rank() == 1) std::this_thread::sleep_for(5ms);  // long enough to sleep over
        group.barrier();
      },
      patient);
}

TEST(Failure, WhoeverWaitsInAMeetingThatWasGivenUpIsTold) {
  Hub hub;
  const auto start = std::chrono::steady_clock::now();
  std::jthread patient([&] {
    EXPECT_THROW(static_cast<void>(hub.join({.size = 3, .rank = 0, .timeout = 60s})), Error);
  });
  std::jthread hasty([&] {
    EXPECT_THROW(static_cast<void>(hub.join({.size = 3, .rank = 1, .timeout = 300ms})), Timeout);
  });
  hasty.join();
  // Only if the patient one came last it sits in a meeting of its own.
  hub.abort("over");
  patient.join();
  EXPECT_LT(std::chrono::steady_clock::now() - start, 30s);
}

TEST(Failure, ANewGenerationCanBeFormedAfterwards) {
  Hub hub;
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < 3; ++rank) {
    threads.emplace_back([&hub, rank] {
      std::uint64_t previous = 0;
      for (int round = 0; round < 10; ++round) {
        Session group = hub.join({.size = 3, .rank = rank});
        EXPECT_GT(group.generation(), previous);
        previous = group.generation();
        std::vector<int> x(100, 1);
        group.all_reduce(Op::sum, std::span(x));
        EXPECT_EQ(x[0], 3);
        std::vector<int> y(rank == round % 3 ? 2 : 1);
        EXPECT_THROW(group.all_reduce(Op::sum, std::span(y)), Mismatch);
      }
    });
  }
}

TEST(Failure, ARankThatRunsFarAheadIsHeldUpNotLost) {
  // Rank 0 only publishes in these broadcasts and could be many operations ahead of rank 3.
  SessionOptions options;
  options.algorithms = "broadcast=tree";
  run_ranks(
      4,
      [](Session& group) {
        for (int i = 0; i < 500; ++i) {
          std::vector<int> x(3, group.rank() == 0 ? i : -1);
          group.broadcast(std::span(x), Root{0});
          ASSERT_EQ(x, std::vector<int>(3, i));
        }
      },
      options);
}

}  // namespace
}  // namespace lockstep::coll
