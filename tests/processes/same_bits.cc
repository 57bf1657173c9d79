#include "tests/processes/same_bits.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <mutex>
#include <sstream>
#include <vector>

#include "lockstep/coll.h"
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

}  // namespace

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

}  // namespace lockstep::processes
