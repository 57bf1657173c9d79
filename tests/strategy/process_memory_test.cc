// A strategy leaves libtorch's allocator and malloc as it found them. (No test of this program
// calls tune_process_memory(); tests/train/tuned_process_test.cc does.)
#include "lockstep/process_memory.h"

#include <c10/core/CPUAllocator.h>

#include "lockstep/testing.h"
#include "tests/strategy/fixtures.h"
#include "tests/strategy/malloc_probe.h"

namespace lockstep {
namespace {

void expect_untouched(const char* after) {
  EXPECT_EQ(c10::GetCPUAllocator(), c10::GetDefaultCPUAllocator()) << after;
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // they allocate by themselves
  EXPECT_TRUE(malloc_maps_large_blocks()) << after;
#endif
}

TEST(ProcessMemory, StrategiesLeaveItAsItWas) {
  expect_untouched("before the first strategy");
  {
    MirroredStrategy one(cpus(1));
    MirroredStrategy two(cpus(2));
    one.run([] {});
    two.run([] { (void)torch::ones({64, 64}).sum(); });
    expect_untouched("with a MirroredStrategy");
  }
  testing::run_workers({.workers = 2, .replicas = 2}, [](MultiWorkerMirroredStrategy& strategy) {
    strategy.run([](ReplicaContext& replica) {
      (void)replica.all_reduce(ReduceOp::sum, torch::ones({64, 64}));
    });
    if (strategy.is_chief()) expect_untouched("with a MultiWorkerMirroredStrategy");
  });
  expect_untouched("after all of them");
}

}  // namespace
}  // namespace lockstep
