// Ranks of a job in which something goes wrong. Ranks say what they met; see CMakeLists.txt for
// what that has to be.
#include <csignal>
#include <cstdlib>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/coll/mpi.h"
#include "tests/engines/mpi/say.h"

namespace lockstep::coll {
namespace {

using namespace std::chrono_literals;

/// Rank 0 waits for rank 1 in a collective that rank 1 never makes.
void reduce(Session& group, const CallOptions& options = {}) {
  std::vector<float> x(8, 1);
  group.all_reduce(Op::sum, std::span(x), options);
}

void timeout(Session& group) {
  if (group.rank() == 0) group.barrier({.timeout = 500ms});
  // The others wait for something else, until they are told.
  std::vector<int> never(1);
  group.receive(std::span(never), From{(group.rank() + 1) % group.size()});
}

void stopped(Session& group) {
  if (group.rank() == 1) std::raise(SIGSTOP);
  reduce(group, {.timeout = 1s});
}

void aborted(Session& group) {
  if (group.rank() == 1) return group.abort("had enough\x1b[2J\nforged");
  reduce(group);
}

void left(Session& group) {
  reduce(group);
  if (group.rank() == 1) return;
  reduce(group);
}

void left_messages(Session& group) {
  if (group.rank() == 1) return;
  std::vector<int> never(1);
  if (group.rank() == 0) group.receive(std::span(never), From{1});
}

void exited(Session& group) {
  if (group.rank() == 1) std::exit(EXIT_SUCCESS);  // NOLINT(concurrency-mt-unsafe): one thread
  reduce(group);
}

void closed_early(Session& group) {
  std::vector<int> x(1);
  if (group.rank() == 1) {
    Work work = group.start_receive(std::span(x), From{0});
    if (work.wait_for(10ms)) std::abort();
    return;
  }
  reduce(group);
}

/// Ranks 0 and 1 disagree in a group of their own; rank 2, alone in its, is told.
void subgroup(Session& group) {
  Session part = group.split({.color = group.rank() / 2});
  std::vector<float> x(4, 1);
  if (group.rank() < 2) part.broadcast(std::span(x), Root{group.rank()});
  for (;;) part.barrier();
}

/// Rank 1 agrees to a split, and does something else instead of making the group.
void split_alone(Session& group) {
  if (group.rank() != 1) {
    Session part = group.split({.color = 0});
    return part.barrier();
  }
  const std::int64_t mine[2] = {0, 0};
  std::vector<std::int64_t> all(2 * static_cast<std::size_t>(group.size()));
  group.all_gather(std::span(mine), std::span(all), {}, {.name = "split"});
  for (;;) std::this_thread::yield();  // until the others end the job
}

/// The same, and rank 1 closes its session.
void split_and_left(Session& group) {
  if (group.rank() != 1) {
    Session part = group.split({.color = 0});
    return part.barrier();
  }
  const std::int64_t mine[2] = {0, 0};
  std::vector<std::int64_t> all(2 * static_cast<std::size_t>(group.size()));
  group.all_gather(std::span(mine), std::span(all), {}, {.name = "split"});
}

void killed(Session& group) {
  if (group.rank() == 1) std::raise(SIGKILL);
  reduce(group);
}

const std::map<std::string, std::function<void(Session&)>> kCases = {
    {"timeout", timeout},
    {"stopped", stopped},
    {"aborted", aborted},
    {"left", left},
    {"left_messages", left_messages},
    {"exited", exited},
    {"closed_early", closed_early},
    {"killed", killed},
    {"split_alone", split_alone},
    {"split_and_left", split_and_left},
    {"subgroup", subgroup}};

int run(const std::string& name) {
  int rank = 0;
  try {
    if (name == "nobody_comes") {
      // Rank 1 makes one session, the others two.
      Session first = mpi_session();
      rank = first.rank();
      if (rank != 1) Session second = mpi_session({.timeout = 1s});
      return EXIT_SUCCESS;
    }
    MpiOptions options;
    if (name == "split_alone") options.options.progress_timeout = 1s;
    Session group = mpi_session(options);
    rank = group.rank();
    kCases.at(name)(group);
    return EXIT_SUCCESS;
  } catch (const Error& error) {
    say(rank, error);
  }
  return EXIT_SUCCESS;  // the engine must not need our code to end the job
}

}  // namespace
}  // namespace lockstep::coll

int main(int argc, char** argv) { return lockstep::coll::run(argc > 1 ? argv[1] : ""); }
