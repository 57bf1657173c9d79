// A rank of a cluster of real processes: joins as the environment says and plays a scenario, given
// as one argument (scenarios.h). What it has to say goes to standard output, a line each. Two more
// scenarios are about joining itself:
//
//   rejoin           joins again after a failed generation
//   stay             works; after a failure it keeps its session until it is told to end
//
// A failure is one line "failed KIND culprits=... code=... at=MICROSECONDS message", and exit
// code 3. "closed after MICROSECONDS" says how long the session took to go.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <chrono>
#include <cstdlib>
#include <optional>
#include <thread>

#include "lockstep/coll.h"
#include "lockstep/coll/join.h"
#include "tests/processes/exercise.h"
#include "tests/processes/scenarios.h"

namespace lockstep::processes {
namespace {

using coll::JoinOptions;
using coll::Session;

JoinOptions options() {
  JoinOptions options = coll::join_options_from_environment();
  options.timeout = std::chrono::seconds(20);
  if (const char* dead = std::getenv("TEST_DEAD_MS")) {
    options.liveness.dead = std::chrono::milliseconds(std::stoi(dead));
    options.liveness.suspect = options.liveness.dead / 3;
  }
  if (const char* timeout = std::getenv("TEST_JOIN_MS")) {
    options.timeout = std::chrono::milliseconds(std::stoi(timeout));
  }
  if (const char* progress = std::getenv("TEST_PROGRESS_MS")) {
    options.options.progress_timeout = std::chrono::milliseconds(std::stoi(progress));
    options.options.stall_report = options.options.progress_timeout / 2;
  }
  if (const char* replicas = std::getenv("TEST_REPLICAS")) {
    options.options.replicas = std::stoi(replicas);
  }
  if (const char* algorithms = std::getenv("TEST_ALGORITHMS")) {
    options.options.algorithms = algorithms;
  }
  return options;
}

void report(const Error& error) {
  std::string message = error.what();
  for (char& c : message) c = c == '\n' ? ' ' : c;
  say(fmt::format("failed {} culprits={} code={} at={} {}", to_string(error.kind()),
                  fmt::join(error.culprits(), ","), to_string(error.code()), now_us(), message));
}

void say_joined(const Session& group) {
  say(fmt::format("joined rank {} of {} by {} generation {}", group.rank(), group.size(),
                  group.transport(), group.generation()));
}

void join_again(std::optional<Session>& group, const JoinOptions& options) {
  bool failed = false;
  try {
    if (group->rank() == 0) group->abort("for a try");
    for (;;) group->barrier();
  } catch (const Cancelled&) {
    failed = true;
  }
  // The others call before rank 0 has left.
  if (group->rank() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(300));
  group.reset();
  group.emplace(coll::join(options));
  group->barrier();
  say(fmt::format("again in generation {} after {}", group->generation(), failed));
  exercise(*group, Buffers::own);
  say("done");
}

/// The failure is reported when it is noticed, before the session goes.
void play_on(std::optional<Session>& group, const JoinOptions& options,
             const std::string& scenario) {
  try {
    if (scenario == "rejoin") return join_again(group, options);
    play(*group, scenario == "stay" ? "work 20 1000" : scenario);
  } catch (const Error& error) {
    report(error);
    if (scenario == "stay") std::this_thread::sleep_for(std::chrono::seconds(20));
    throw;
  }
}

/// Closes its direction of every connection after that time, while it joins.
std::jthread mute_later() {
  const char* after = std::getenv("TEST_MUTE_MS");
  if (after == nullptr) return {};
  return std::jthread([wait = std::chrono::milliseconds(std::stoi(after))] {
    std::this_thread::sleep_for(wait);
    mute();
  });
}

int run(const std::string& scenario) {
  const std::jthread muting = mute_later();
  std::optional<Session> group;
  int code = 0;
  bool reported = false;
  try {
    const JoinOptions chosen = options();
    group.emplace(coll::join(chosen));
    say_joined(*group);
    reported = true;
    play_on(group, chosen, scenario);
  } catch (const Error& error) {
    if (!reported) report(error);
    code = 3;
  } catch (const std::exception& error) {
    say(fmt::format("unexpected {}", error.what()));
    code = 5;
  }
  const std::int64_t closing = now_us();
  group.reset();
  say(fmt::format("closed after {}", now_us() - closing));
  return code;
}

}  // namespace
}  // namespace lockstep::processes

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  return lockstep::processes::run(argv[1]);
}
