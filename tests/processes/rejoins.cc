#include "tests/processes/rejoins.h"

#include <fmt/format.h>

#include <chrono>

namespace lockstep::processes {
namespace {

using namespace std::chrono_literals;

/// The rest of the line that begins with these words; empty if there is none.
std::string line_after(const std::string& text, const std::string& words) {
  const std::size_t at = text.find(words);
  if (at == std::string::npos) return {};
  const std::size_t from = at + words.size();
  return text.substr(from, text.find('\n', from) - from);
}

}  // namespace

std::vector<std::string> kill_and_rejoin(ClusterOptions options, int victim, int generations) {
  options.scenario = fmt::format("rejoins {}", generations);
  std::vector<std::string> wrong;
  ProcessCluster cluster(options);
  for (int generation = 1; generation < generations; ++generation) {
    if (!cluster.wait_for_all(fmt::format("at work in generation {}\n", generation), 20s)) {
      wrong.push_back(fmt::format("not all came to generation {}", generation));
      break;
    }
    (void)cluster.process(victim).signal(sys::Signal::kill);
    (void)cluster.process(victim).wait(Deadline::after(5s));
    // A new process is refused by those who are still in the old generation.
    for (int rank = 0; rank < options.ranks; ++rank) {
      if (rank == victim) continue;
      (void)cluster.wait_for(rank, fmt::format("left generation {}\n", generation), 10s);
    }
    cluster.start(victim);
  }
  const auto outcomes = cluster.finish(30s);
  for (int rank = 0; rank < options.ranks; ++rank) {
    const Outcome& outcome = outcomes[static_cast<std::size_t>(rank)];
    const std::string before = line_after(outcome.text, "before: ");
    const std::string after = line_after(outcome.text, "after: ");
    if (!outcome.ok() || before.empty() || before != after) {
      wrong.push_back(fmt::format("rank {} {}; it held {} before and {} after, and said\n{}", rank,
                                  outcome.how(), before, after, outcome.text));
    }
  }
  return wrong;
}

}  // namespace lockstep::processes
