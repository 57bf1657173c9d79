// A rank of a cluster of real processes: joins as the environment says and plays a scenario, given
// as one argument (scenarios.h). What it has to say goes to standard output, a line each. Some more
// scenarios are about joining itself:
//
//   rejoin           joins again after a failed generation
//   rejoins COUNT    joins again after every failure, up to that generation; what it held before
//                    the first and after the last
//   stay             works; after a failure it keeps its session until it is told to end
//
// A failure is one line "failed KIND culprits=... code=... at=MICROSECONDS message", and exit
// code 3. "closed after MICROSECONDS" says how long the session took to go.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <span>
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

/// What this process holds of what the system has.
std::string holdings() {
  namespace fs = std::filesystem;
  int descriptors = 0;
  int segments = 0;
  for (const auto& entry : fs::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    ++descriptors;
    if (fs::read_symlink(entry.path(), gone).string().find("memfd:") != std::string::npos) {
      ++segments;
    }
  }
  int mapped = 0;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    if (line.find("memfd:lockstep") != std::string::npos) ++mapped;
  }
  return fmt::format("{} descriptors, {} segments, {} mapped", descriptors, segments, mapped);
}

/// Works until the generation fails; the last one ends in good order.
std::uint64_t work_in_a_generation(const JoinOptions& options, std::uint64_t last) {
  Session group = coll::join(options);
  const std::uint64_t generation = group.generation();
  coll::Memory memory = group.allocate(1 << 20);
  try {
    for (int round = 0; generation < last || round < 3; ++round) {
      group.all_reduce(Op::sum, memory.as<float>());
      Session half = group.split({.color = group.rank() % 2});
      half.barrier();
      if (round == 1) say(fmt::format("at work in generation {}", generation));
    }
  } catch (const PeerLost& error) {
    report(error);
    const char* slow = std::getenv("TEST_LEAVE_MS");
    if (slow != nullptr) std::this_thread::sleep_for(std::chrono::milliseconds(std::stoi(slow)));
  }
  return generation;
}

int rejoin_often(const JoinOptions& options, std::uint64_t last) {
  const std::string before = holdings();
  say("before: " + before);
  for (std::uint64_t generation = 0; generation < last;) {
    generation = work_in_a_generation(options, last);
    say(fmt::format("left generation {}", generation));
  }
  // Their threads say a last word after they are closed.
  constexpr std::int64_t kPatience = 10'000'000;
  const std::int64_t end = now_us() + kPatience;
  while (holdings() != before && now_us() < end) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  say("after: " + holdings());
  return 0;
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

/// Interrupts whatever every thread does, again and again: system calls that wait return EINTR.
void interrupt_all(const std::stop_token& stop, std::chrono::milliseconds period) {
  struct sigaction nothing {};
  nothing.sa_handler = [](int /*signal*/) {};  // without SA_RESTART
  ::sigaction(SIGUSR1, &nothing, nullptr);
  const pid_t own = ::gettid();
  while (!stop.stop_requested()) {
    std::error_code gone;
    for (const auto& task : std::filesystem::directory_iterator("/proc/self/task", gone)) {
      const pid_t thread = std::stoi(task.path().filename().string());
      if (thread != own) ::syscall(SYS_tgkill, ::getpid(), thread, SIGUSR1);
    }
    std::this_thread::sleep_for(period);
  }
}

std::jthread interrupts() {
  const char* period = std::getenv("TEST_INTERRUPT_MS");
  if (period == nullptr) return {};
  return std::jthread(interrupt_all, std::chrono::milliseconds(std::stoi(period)));
}

int run(const std::string& scenario) {
  const std::jthread muting = mute_later();
  const std::jthread interrupting = interrupts();
  std::optional<Session> group;
  int code = 0;
  bool reported = false;
  try {
    const JoinOptions chosen = options();
    if (scenario.rfind("rejoins ", 0) == 0) {
      return rejoin_often(chosen, std::stoull(scenario.substr(scenario.find(' '))));
    }
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
