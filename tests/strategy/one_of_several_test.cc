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
[[noreturn]] void count_warnings(const char* rank, const char* size, F&& fn) {
  const SetVariable its_rank("LOCKSTEP_RANK", rank);
  const SetVariable its_size("LOCKSTEP_SIZE", size);
  int warnings = 0;
  set_log_sink([&](LogLevel, std::string_view text) {
    if (text.find("each trains alone") != std::string_view::npos) ++warnings;
    std::fprintf(stderr, "%.*s\n", static_cast<int>(text.size()), text.data());
  });
  fn();
  std::_Exit(warnings);
}

TEST(OneOfSeveralDeathTest, EachProcessTrainsAloneIsSaidOnce) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(count_warnings("0", "2",
                             [] {
                               const MirroredStrategy first(cpus(2));
                               const MirroredStrategy second(cpus(1));
                               const auto third = first.clone();
                             }),
              ExitedWithCode(1),
              ContainsRegex("MirroredStrategy: lockstep launch has started 2 .* each trains alone"
                            ".*MultiWorkerMirroredStrategy trains one model"));
  EXPECT_EXIT(count_warnings("0", "3", [] { const OneDeviceStrategy one("CPU:0"); }),
              ExitedWithCode(1), "has started 3 ");
  EXPECT_EXIT(count_warnings("0", "2", [] { const CentralStorageStrategy central; }),
              ExitedWithCode(1), "CentralStorageStrategy");
}

TEST(OneOfSeveralDeathTest, OnlyTheFirstSaysItAndNobodyWhoIsAlone) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto mirrored = [] { const MirroredStrategy strategy(cpus(1)); };
  EXPECT_EXIT(count_warnings("1", "2", mirrored), ExitedWithCode(0), "");
  EXPECT_EXIT(count_warnings("0", "1", mirrored), ExitedWithCode(0), "");
  EXPECT_EXIT(count_warnings("", "", mirrored), ExitedWithCode(0), "");
}

}  // namespace
}  // namespace lockstep
