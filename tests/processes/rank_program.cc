// A rank of a cluster of real processes: joins as the environment says and plays a scenario, given
// as one argument. What it has to say goes to standard output, a line each.
//
//   exercise own | exercise session   every collective; one line for each result
//   work SECONDS COUNT [session]      all-reduces of COUNT floats until the time is over
//   idle SECONDS                      joins and does nothing
//   mismatch RANK                     that rank asks for another count
//   leave RANK                        that rank closes its session early
//   rejoin                            joins again after a failed generation
// A failure is one line "failed KIND culprits=... at=MICROSECONDS message", and exit code 3.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <optional>
#include <sstream>
#include <thread>

#include "lockstep/coll.h"
#include "lockstep/coll/join.h"
#include "tests/processes/exercise.h"

namespace lockstep::processes {
namespace {

using coll::JoinOptions;
using coll::Session;

std::int64_t now_us() {
  return std::chrono::duration_cast<std::chrono::microseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

void say(const std::string& line) {
  fmt::print("{}\n", line);
  std::fflush(stdout);
}

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
  if (const char* replicas = std::getenv("TEST_REPLICAS")) {
    options.options.replicas = std::stoi(replicas);
  }
  return options;
}

void report(const Error& error) {
  std::string message = error.what();
  for (char& c : message) c = c == '\n' ? ' ' : c;
  say(fmt::format("failed {} culprits={} at={} {}", to_string(error.kind()),
                  fmt::join(error.culprits(), ","), now_us(), message));
}

void work(Session& group, double seconds, std::size_t count, bool of_session) {
  const std::int64_t end = now_us() + static_cast<std::int64_t>(seconds * 1e6);
  std::vector<float> own(count);
  coll::Memory memory = group.allocate(count * sizeof(float));
  const std::span<float> values = of_session ? memory.as<float>() : std::span(own);
  std::int32_t stop = 0;
  std::int64_t rounds = 0;
  while (stop == 0) {
    for (float& value : values) value = static_cast<float>(group.rank() + 1);
    group.all_reduce(Op::sum, values);
    const auto expected = static_cast<float>(group.size() * (group.size() + 1) / 2);
    for (const float value : values) {
      if (value == expected) continue;
      say(fmt::format("wrong {} instead of {}", value, expected));
      _exit(4);
    }
    stop = now_us() > end ? 1 : 0;
    group.all_reduce(Op::max, std::span(&stop, 1));
    if (++rounds == 3) say("working");
  }
  say(fmt::format("done after {} rounds", rounds));
}

void play(const std::string& scenario) {
  std::istringstream words(scenario);
  std::string name;
  words >> name;
  Session group = coll::join(options());
  say(fmt::format("joined rank {} of {} by {} generation {}", group.rank(), group.size(),
                  group.transport(), group.generation()));
  if (name == "exercise") {
    std::string buffers;
    words >> buffers;
    for (const std::string& line :
         exercise(group, buffers == "own" ? Buffers::own : Buffers::of_session)) {
      say("result " + line);
    }
  } else if (name == "work") {
    double seconds = 0;
    std::size_t count = 0;
    std::string where;
    words >> seconds >> count >> where;
    work(group, seconds, count, where == "session");
  } else if (name == "idle") {
    double seconds = 0;
    words >> seconds;
    say("working");
    std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
    group.check();
    group.barrier();
    say("done");
  } else if (name == "mismatch") {
    int odd = 0;
    words >> odd;
    std::vector<float> values(group.rank() == odd ? 11 : 10);
    group.barrier();
    group.all_reduce(Op::sum, std::span(values));
  } else if (name == "leave") {
    int leaver = 0;
    words >> leaver;
    group.barrier();
    if (group.rank() == leaver) return say("left");
    group.barrier();
  } else if (name == "rejoin") {
    bool failed = false;
    try {
      if (group.rank() == 0) group.abort("for a try");
      for (;;) group.barrier();
    } catch (const Cancelled&) {
      failed = true;
    }
    { const Session old = std::move(group); }
    Session again = coll::join(options());
    again.barrier();
    say(fmt::format("again in generation {} after {}", again.generation(), failed));
    exercise(again, Buffers::own);
    say("done");
  } else {
    throw InvalidUsage("unknown scenario " + scenario);
  }
}

}  // namespace
}  // namespace lockstep::processes

int main(int argc, char** argv) {
  using namespace lockstep;
  if (argc != 2) return 2;
  try {
    processes::play(argv[1]);
    return 0;
  } catch (const Error& error) {
    processes::report(error);
    return 3;
  } catch (const std::exception& error) {
    processes::say(fmt::format("unexpected {}", error.what()));
    return 5;
  }
}
