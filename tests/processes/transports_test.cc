// Every collective over every transport gives the bits that threads give (which the plan checker
// proves), and goes over the transport it should.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <mutex>
#include <sstream>

#include "lockstep/coll.h"
#include "tests/processes/cluster.h"
#include "tests/processes/exercise.h"

namespace lockstep::processes {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

using Lines = std::vector<std::string>;

/// What each rank's exercise gives over threads.
const std::vector<Lines>& expected(int ranks) {
  static std::map<int, std::vector<Lines>> known;
  auto& lines = known[ranks];
  if (lines.empty()) {
    lines.resize(static_cast<std::size_t>(ranks));
    std::mutex mutex;
    coll::run_ranks(ranks, [&](coll::Session& group) {
      Lines own = exercise(group, Buffers::own);
      const std::lock_guard lock(mutex);
      lines[static_cast<std::size_t>(group.rank())] = std::move(own);
    });
  }
  return lines;
}

Lines results_in(const std::string& text) {
  Lines lines;
  std::istringstream stream(text);
  const std::string prefix = "result ";
  for (std::string line; std::getline(stream, line);) {
    if (line.rfind(prefix, 0) == 0) lines.push_back(line.substr(prefix.size()));
  }
  return lines;
}

void expect_same_bits(const ClusterOptions& options, const std::string& transport) {
  ProcessCluster cluster(options);
  const auto outcomes = cluster.finish(50s);
  for (int rank = 0; rank < options.ranks; ++rank) {
    const Outcome& outcome = outcomes[static_cast<std::size_t>(rank)];
    ASSERT_TRUE(outcome.ok()) << "rank " << rank << ": "
                              << (outcome.ended ? outcome.ended->to_string() : "hung") << "\n"
                              << outcome.text.substr(0, 2000);
    EXPECT_THAT(outcome.text, HasSubstr(fmt::format("by {} generation", transport)));
    const Lines got = results_in(outcome.text);
    const Lines& want = expected(options.ranks)[static_cast<std::size_t>(rank)];
    ASSERT_EQ(got.size(), want.size());
    for (std::size_t i = 0; i < got.size(); ++i) ASSERT_EQ(got[i], want[i]) << "rank " << rank;
  }
}

class SharedMemory : public testing::TestWithParam<int> {};

TEST_P(SharedMemory, OwnBuffers) {
  expect_same_bits({.ranks = GetParam(), .scenario = "exercise own"}, "shared memory");
}
TEST_P(SharedMemory, BuffersOfTheSession) {
  expect_same_bits({.ranks = GetParam(), .scenario = "exercise session"}, "shared memory");
}
INSTANTIATE_TEST_SUITE_P(Ranks, SharedMemory, testing::Values(2, 3, 4, 5, 8));

TEST(OneProcess, NeedsNobody) {
  ProcessCluster cluster({.ranks = 1, .scenario = "exercise own"});
  const auto outcomes = cluster.finish(50s);
  ASSERT_TRUE(outcomes[0].ok()) << outcomes[0].text;
  EXPECT_EQ(results_in(outcomes[0].text), expected(1)[0]);
}

class Streams : public testing::TestWithParam<int> {};

TEST_P(Streams, Tcp) {
  expect_same_bits({.ranks = GetParam(), .scenario = "exercise own", .wire = Wire::tcp}, "tcp");
}
TEST_P(Streams, Tls) {
  expect_same_bits({.ranks = GetParam(), .scenario = "exercise own", .wire = Wire::tls}, "tls");
}
TEST_P(Streams, AuthenticatedThenPlain) {
  expect_same_bits({.ranks = GetParam(), .scenario = "exercise own", .wire = Wire::plaintext},
                   "tls, data in plain text");
}
INSTANTIATE_TEST_SUITE_P(Ranks, Streams, testing::Values(2, 3, 5));

struct Layout {
  const char* name;
  std::vector<std::string> hosts;
};
class Mixed : public testing::TestWithParam<Layout> {};

TEST_P(Mixed, HostsOfSeveralRanks) {
  expect_same_bits({.ranks = static_cast<int>(GetParam().hosts.size()),
                    .scenario = "exercise own",
                    .wire = Wire::tls,
                    .hosts = GetParam().hosts},
                   "local sockets and tls");
}
INSTANTIATE_TEST_SUITE_P(Layouts, Mixed,
                         testing::Values(Layout{"TwoByTwo", {"a", "a", "b", "b"}},
                                         Layout{"TwoByThree", {"a", "a", "a", "b", "b", "b"}},
                                         Layout{"ThreeByTwo", {"a", "a", "b", "b", "c", "c"}},
                                         Layout{"Scattered", {"a", "b", "a", "b"}}),
                         [](const auto& layout) { return std::string(layout.param.name); });

}  // namespace
}  // namespace lockstep::processes
