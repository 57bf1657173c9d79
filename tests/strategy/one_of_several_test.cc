// Strategies of one process in a program that `lockstep launch` has started several times.
#include "lockstep/central_storage_strategy.h"
#include "lockstep/one_device_strategy.h"
#include "tests/strategy/fixtures.h"
#include "tests/strategy/set_variable.h"

namespace lockstep {
namespace {

using ::testing::ContainsRegex;
using ::testing::ExitedWithCode;

/// Ends the process with the number of warnings about processes that train alone. Others, say of a
/// BLAS that does not know the processor, depend on the machine.
template <class F>
[[noreturn]] void count_warnings(F&& fn) {
  int warnings = 0;
  set_log_sink([&](LogLevel, std::string_view text) {
    if (text.find("each trains alone") != std::string_view::npos) ++warnings;
    std::fprintf(stderr, "%.*s\n", static_cast<int>(text.size()), text.data());
  });
  fn();
  std::_Exit(warnings);
}

/// The same of a rank that `lockstep launch` has started.
template <class F>
[[noreturn]] void count_warnings(const char* rank, int size, F&& fn) {
  const SetVariable its_rank("LOCKSTEP_RANK", rank);
  std::string addresses;
  for (int i = 0; i < size; ++i) addresses += (i == 0 ? "unix:/r" : ",unix:/r") + std::to_string(i);
  const SetVariable its_addresses("LOCKSTEP_ADDRESSES", addresses.c_str());
  count_warnings(std::forward<F>(fn));
}

/// The same with other variables.
template <class F>
[[noreturn]] void count_warnings_with(
    const std::vector<std::pair<const char*, const char*>>& variables, F&& fn) {
  for (const auto& [name, value] : variables) ::setenv(name, value, 1);
  count_warnings(std::forward<F>(fn));
}

TEST(OneOfSeveralDeathTest, EachProcessTrainsAloneIsSaidOnce) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(count_warnings("0", 2,
                             [] {
                               const MirroredStrategy first(cpus(2));
                               const MirroredStrategy second(cpus(1));
                               const auto third = first.clone();
                             }),
              ExitedWithCode(1),
              ContainsRegex("MirroredStrategy: by LOCKSTEP_ADDRESSES this process is rank 0 of 2, "
                            "and each trains alone"
                            ".*MultiWorkerMirroredStrategy trains one model"));
  EXPECT_EXIT(count_warnings("0", 3, [] { const OneDeviceStrategy one("CPU:0"); }),
              ExitedWithCode(1), "rank 0 of 3");
  EXPECT_EXIT(count_warnings("0", 2, [] { const CentralStorageStrategy central; }),
              ExitedWithCode(1), "CentralStorageStrategy");
}

TEST(OneOfSeveralDeathTest, OnlyTheFirstSaysItAndNobodyWhoIsAlone) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto mirrored = [] { const MirroredStrategy strategy(cpus(1)); };
  EXPECT_EXIT(count_warnings("1", 2, mirrored), ExitedWithCode(0), "");
  EXPECT_EXIT(count_warnings("0", 1, mirrored), ExitedWithCode(0), "");
  EXPECT_EXIT(count_warnings(mirrored), ExitedWithCode(0), "");
}

TEST(OneOfSeveralDeathTest, OtherLaunchersAreKnownToo) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto mirrored = [] { const MirroredStrategy strategy(cpus(1)); };
  constexpr const char* kTwoWorkers =
      R"({"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", "index": 0}})";
  constexpr const char* kEvaluator =
      R"({"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "evaluator", "index": 0}})";
  EXPECT_EXIT(count_warnings_with({{"TF_CONFIG", kTwoWorkers}}, mirrored), ExitedWithCode(1),
              "by TF_CONFIG this process is rank 0 of 2");
  EXPECT_EXIT(count_warnings_with({{"TF_CONFIG", kEvaluator}}, mirrored), ExitedWithCode(0), "");
  EXPECT_EXIT(count_warnings_with({{"TF_CONFIG", "{"}}, mirrored), ExitedWithCode(0), "");
  EXPECT_EXIT(count_warnings_with({{"RANK", "0"}, {"WORLD_SIZE", "4"}}, mirrored),
              ExitedWithCode(1), "by torchrun this process is rank 0 of 4");
  EXPECT_EXIT(count_warnings_with({{"RANK", "3"}, {"WORLD_SIZE", "4"}}, mirrored),
              ExitedWithCode(0), "");
  EXPECT_EXIT(
      count_warnings_with({{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "2"}}, mirrored),
      ExitedWithCode(1), "by Open MPI this process is rank 0 of 2");
  EXPECT_EXIT(count_warnings_with({{"PMI_RANK", "0"}, {"PMI_SIZE", "3"}}, mirrored),
              ExitedWithCode(1), "by MPICH this process is rank 0 of 3");
  EXPECT_EXIT(count_warnings_with({{"SLURM_PROCID", "0"},
                                   {"SLURM_STEP_NUM_TASKS", "2"},
                                   {"SLURM_STEP_NODELIST", "a,b"},
                                   {"SLURM_STEP_TASKS_PER_NODE", "1(x2)"}},
                                  mirrored),
              ExitedWithCode(1), "by Slurm this process is rank 0 of 2");
}

}  // namespace
}  // namespace lockstep
