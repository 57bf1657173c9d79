#include "tests/processes/held_memory.h"

#include <gtest/gtest.h>

#include <cstdio>

namespace lockstep::processes {

std::vector<Held> held_after(const ClusterOptions& options, std::chrono::seconds patience) {
  constexpr const char* kLine =
      "held %d KiB before, %d early, %d open, %d closed; heap %d before, %d early, %d open";
  std::vector<Held> found;
  ProcessCluster cluster(options);
  for (const Outcome& outcome : cluster.finish(patience)) {
    EXPECT_TRUE(outcome.ok()) << outcome.how() << "\n" << outcome.text;
    Held held;
    const std::size_t at = outcome.text.find("held ");
    if (at == std::string::npos ||
        std::sscanf(outcome.text.c_str() + at, kLine, &held.before, &held.early, &held.open,
                    &held.closed, &held.heap_before, &held.heap_early, &held.heap_open) != 7) {
      ADD_FAILURE() << outcome.text;
      continue;
    }
    found.push_back(held);
  }
  return found;
}

}  // namespace lockstep::processes
