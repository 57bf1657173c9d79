// What documents promise of the examples.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/docs/sources.h"

namespace {

using ::testing::IsEmpty;

using namespace lockstep::docs;

// docs/threads.md: a program of libtorch that does not choose its kernels may be slow, and warns.
TEST(Examples, ThatMakeAStrategyChooseTheKernels) {
  std::vector<std::string> without;
  int strategies = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(kRoot / "examples")) {
    if (entry.path().extension() != ".cc") continue;
    const std::string text = content(entry.path());
    const bool is_program = text.find("int main(") != std::string::npos;
    if (!is_program || text.find("Strategy strategy") == std::string::npos) continue;
    ++strategies;
    if (text.find("choose_blas_kernels(argv)") == std::string::npos) {
      without.push_back(entry.path().filename());
    }
  }
  EXPECT_THAT(without, IsEmpty());
  EXPECT_GT(strategies, 10);
}

// The page's recipe is a part of a program that is built, run and compared with plain libtorch.
TEST(Examples, TheRecipeOfGansIsCompiledAndRun) {
  const std::string page = content(kRoot / "docs/gan.md");
  const std::string fence = "```cpp\n";
  const auto begin = page.find(fence);
  ASSERT_NE(begin, std::string::npos);
  const auto end = page.find("```", begin + fence.size());
  ASSERT_NE(end, std::string::npos);
  const std::string recipe = page.substr(begin + fence.size(), end - begin - fence.size());
  EXPECT_NE(recipe.find("backward()"), std::string::npos);
  EXPECT_NE(content(kRoot / "examples/gan.cc").find(recipe), std::string::npos)
      << "docs/gan.md shows what is not in examples/gan.cc:\n"
      << recipe;
}

}  // namespace
