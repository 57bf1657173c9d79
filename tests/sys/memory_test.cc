#include "sys/memory.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <thread>

namespace lockstep::sys {
namespace {

struct Free {
  void operator()(void* block) const { std::free(block); }
};

// Three large blocks that live at the same time, as a step's tensors do. More than glibc has in one
// piece for a thread other than the first.
void step() {
  std::unique_ptr<void, Free> blocks[3];
  for (auto& block : blocks) {
    constexpr std::size_t kBytes = std::size_t{24} << 20;
    block.reset(std::malloc(kBytes));
    std::memset(block.get(), 1, kBytes);
  }
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // they allocate by themselves
long page_faults() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_minflt;
}

void expect_no_faults() {
  keep_freed_memory();
  step();
  const long before = page_faults();
  for (int i = 0; i < 10; ++i) step();
  EXPECT_LT(page_faults() - before, 100);  // of 10 x 18432 pages
}

TEST(Memory, KeptBlocksAreNotFaultedInAgain) { expect_no_faults(); }

TEST(Memory, EveryThreadKeepsItsOwn) { std::thread(expect_no_faults).join(); }
#endif

TEST(Memory, TwiceIsOnce) {
  keep_freed_memory();
  keep_freed_memory();
  step();
}

}  // namespace
}  // namespace lockstep::sys
