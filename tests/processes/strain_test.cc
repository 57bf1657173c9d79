// Ranks on a machine that makes it hard for them: signals without end, one core for all, many busy
// threads beside them. Nobody fails, and nothing but the time is different. The ids are those of
// the catalogue of failures.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/resource.h>

#include <set>
#include <thread>

#include "tests/processes/fault_checks.h"
#include "tests/processes/scenarios.h"

namespace lockstep::processes {
namespace {

using namespace std::chrono_literals;
using testing::SizeIs;

/// What `train` computes on these ranks, the same on all.
std::set<std::string> digests(const ClusterOptions& options) {
  std::set<std::string> found;
  ProcessCluster cluster(options);
  for (const Outcome& outcome : cluster.finish(30s)) {
    EXPECT_TRUE(outcome.ok()) << outcome.how() << outcome.text;
    const std::size_t at = outcome.text.find("digest ");
    if (at != std::string::npos) found.insert(outcome.text.substr(at, sizeof("digest ") + 15));
  }
  return found;
}

class Interrupted : public testing::TestWithParam<Wire> {};

/// While they join, work and close.
TEST_P(Interrupted, D7SystemCallsGiveTheSameBits) {
  ClusterOptions options{.ranks = 3, .scenario = "train 100 20000", .wire = GetParam()};
  const auto undisturbed = digests(options);
  EXPECT_THAT(undisturbed, SizeIs(1));
  options.environment = {"TEST_INTERRUPT_MS=1"};
  EXPECT_EQ(digests(options), undisturbed);
}

/// Every interrupted wait goes on until its own deadline.
TEST_P(Interrupted, D7WaitsDoNotEndEarly) {
  const std::int64_t before = now_us();
  ProcessCluster cluster({.ranks = 2,
                          .scenario = "stuck 1",
                          .wire = GetParam(),
                          .environment = {"TEST_INTERRUPT_MS=1", "TEST_PROGRESS_MS=1000"}});
  const auto outcomes = cluster.finish(30s);
  expect_verdicts(outcomes, {}, {"Timeout", {1}});
  for (const Outcome& outcome : outcomes) {
    const auto verdict = verdict_in(outcome.text);
    ASSERT_TRUE(verdict.has_value());
    EXPECT_GE(verdict->at_us - before, 1'000'000) << outcome.text;
  }
}

INSTANTIATE_TEST_SUITE_P(Over, Interrupted, testing::Values(Wire::local, Wire::tcp, Wire::tls),
                         [](const auto& wire) { return to_string(wire.param); });

/// Memory of the session is made in one call, which takes longer than from one signal to the next.
TEST(Interruptions, D7MemoryOfTheSession) {
  ProcessCluster cluster({.ranks = 2,
                          .scenario = "work 0.1 16000000 session",
                          .environment = {"TEST_INTERRUPT_MS=1"}});
  for (const Outcome& outcome : cluster.finish(30s)) EXPECT_TRUE(outcome.ok()) << outcome.text;
}

/// The last core that this process may run on.
int some_core() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  ::sched_getaffinity(0, sizeof(allowed), &allowed);
  int core = 0;
  for (int i = 0; i < CPU_SETSIZE; ++i) {
    if (CPU_ISSET(i, &allowed)) core = i;
  }
  return core;
}

ClusterOptions on_one_core(ClusterOptions options) {
  for (int rank = 0; rank < options.ranks; ++rank) {
    options.wrappers.push_back({"taskset", "--cpu-list", std::to_string(some_core())});
    if (options.wire != Wire::local) options.hosts.push_back(fmt::format("host{}", rank));
  }
  return options;
}

/// Of all processes that this one has waited for.
std::int64_t used_cpu_us() {
  rusage used{};
  ::getrusage(RUSAGE_CHILDREN, &used);
  const auto micros = [](const timeval& time) {
    return std::int64_t{1'000'000} * time.tv_sec + time.tv_usec;
  };
  return micros(used.ru_utime) + micros(used.ru_stime);
}

class OneCore : public testing::TestWithParam<Wire> {};

/// A rank that spins while it waits for one that has no core keeps it from running. What is looked
/// at is the time that they use, which does not depend on what else the machine does.
TEST_P(OneCore, D11FourRanksGetOn) {
  constexpr std::int64_t kSteps = 200;
  // Several times what they need, and a part of what spinning through their time slices would take.
  const std::int64_t most_us = GetParam() == Wire::local ? 1000 : 8000;
  const std::int64_t before = used_cpu_us();
  ProcessCluster cluster(on_one_core(
      {.ranks = 4, .scenario = fmt::format("train {} 100", kSteps), .wire = GetParam()}));
  for (const Outcome& outcome : cluster.finish(30s)) {
    EXPECT_TRUE(outcome.ok()) << outcome.how() << outcome.text;
  }
  if (kInstrumented) return;
  EXPECT_LT((used_cpu_us() - before) / kSteps, most_us) << "for each step";
}

INSTANTIATE_TEST_SUITE_P(Over, OneCore, testing::Values(Wire::local, Wire::tcp, Wire::tls),
                         [](const auto& wire) { return to_string(wire.param); });

class Oversubscribed : public testing::TestWithParam<Wire> {};

/// Eight threads that never wait want the core that all ranks and their pulses have.
TEST_P(Oversubscribed, A18NobodyIsTakenForDead) {
  std::vector<std::jthread> busy;
  for (int i = 0; i < 8; ++i) {
    busy.emplace_back([](const std::stop_token& stop) {
      cpu_set_t core;
      CPU_ZERO(&core);
      CPU_SET(some_core(), &core);
      ::sched_setaffinity(0, sizeof(core), &core);
      while (!stop.stop_requested()) {
      }
    });
  }
  ProcessCluster cluster(on_one_core({.ranks = 2,
                                      .scenario = "work 2 1000",
                                      .wire = GetParam(),
                                      .environment = {"TEST_DEAD_MS=1000"}}));
  for (const Outcome& outcome : cluster.finish(30s)) {
    EXPECT_TRUE(outcome.ok()) << outcome.how() << outcome.text;
  }
}

INSTANTIATE_TEST_SUITE_P(Over, Oversubscribed, testing::Values(Wire::local, Wire::tls),
                         [](const auto& wire) { return to_string(wire.param); });

}  // namespace
}  // namespace lockstep::processes
