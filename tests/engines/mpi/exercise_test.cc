// The exercise that every transport of ours passes (tests/processes), over MPI: the same bits as
// threads give, but for sums, means and products of floating numbers. MPI adds those up in an order
// of its own; reductions_test.cc says how far off they may be.
#include "tests/processes/exercise.h"

#include <gmock/gmock.h>

#include <mutex>
#include <regex>
#include <string>
#include <vector>

#include "lockstep/coll.h"
#include "tests/engines/mpi/group.h"

namespace lockstep::coll {
namespace {

using processes::Buffers;
using processes::exercise;
using Lines = std::vector<std::string>;

/// What this rank's exercise gives over threads.
Lines over_threads(int rank, int ranks) {
  Lines lines;
  std::mutex mutex;
  run_ranks(ranks, [&](Session& group) {
    Lines own = exercise(group, Buffers::own);
    const std::lock_guard lock(mutex);
    if (group.rank() == rank) lines = std::move(own);
  });
  return lines;
}

/// Whether the bits of a result depend on the order of additions.
bool depends_on_order(const std::string& line) {
  static const std::regex sum(
      R"((rounded )?(all_reduce|reduce|reduce_scatter)( in place)? (sum|mean|product) )"
      R"((b?float\w*|complex\w*|\d).*|(work|batch|split) .*)");
  return std::regex_match(line, sum);
}

std::string name_of(const std::string& line) { return line.substr(0, line.rfind(' ')); }

class MpiExercise : public testing::TestWithParam<Buffers> {};

TEST_P(MpiExercise, GivesTheBitsOfThreads) {
  Session group = make_group();
  const Lines got = exercise(group, GetParam());
  const Lines want = over_threads(group.rank(), group.size());
  ASSERT_EQ(got.size(), want.size());
  std::size_t compared = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    EXPECT_EQ(name_of(got[i]), name_of(want[i]));
    if (depends_on_order(want[i])) continue;
    EXPECT_EQ(got[i], want[i]);
    ++compared;
  }
  EXPECT_GT(compared, got.size() / 2);
  group.barrier();
}

INSTANTIATE_TEST_SUITE_P(In, MpiExercise, testing::Values(Buffers::own, Buffers::of_session),
                         [](const auto& kind) {
                           return kind.param == Buffers::own ? "OwnBuffers" : "MemoryOfTheSession";
                         });

}  // namespace
}  // namespace lockstep::coll
