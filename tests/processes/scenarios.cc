#include "tests/processes/scenarios.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <malloc.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <span>
#include <sstream>
#include <stdexcept>
#include <thread>
#include <vector>

#include "lockstep/log.h"
#include "tests/processes/exercise.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace lockstep::processes {
namespace {

using coll::Session;

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
    const int sum_of_ranks = group.size() * (group.size() + 1) / 2;
    const auto expected = static_cast<float>(sum_of_ranks);
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

/// After an operation has thrown, its buffers are the caller's alone.
void fail(Session& group, std::size_t count) {
  const coll::Memory memory = group.allocate(count * sizeof(float));
  const std::span<float> values = memory.as<float>();
  group.barrier();
  say("working");
  try {
    for (;;) group.all_reduce(Op::sum, values);
  } catch (const PeerLost&) {
    std::fill(values.begin(), values.end(), -1.0F);
  }
  constexpr std::int64_t kLonger = 500'000;  // than others need to hear of the failure
  for (const std::int64_t end = now_us() + kLonger; now_us() < end;) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  const auto kept = std::count(values.begin(), values.end(), -1.0F);
  say(fmt::format("{} of {} kept", kept, count));
}

/// Each step's sums go into the next one's: one wrong bit shows in the digest.
void train(Session& group, int steps, std::size_t count) {
  std::vector<float> weights(count);
  std::vector<float> gradients(count);
  for (std::size_t i = 0; i < count; ++i) weights[i] = static_cast<float>(i % 97) * 0.01F;
  std::vector<std::int64_t> done;
  done.reserve(static_cast<std::size_t>(steps));
  group.barrier();
  say("working");
  for (int step = 0; step < steps; ++step) {
    for (std::size_t i = 0; i < count; ++i) {
      gradients[i] = weights[i] * 0.5F + static_cast<float>(group.rank() + step % 7);
    }
    group.all_reduce(Op::mean, std::span(gradients));
    for (std::size_t i = 0; i < count; ++i) weights[i] -= 0.1F * gradients[i];
    done.push_back(now_us());
  }
  if (group.rank() == 0) say(fmt::format("steps {}", fmt::join(done, " ")));
  say(fmt::format("digest {:016x}", XXH3_64bits(weights.data(), count * sizeof(float))));
}

void idle(const Session& group, double seconds) {
  say("working");
  const std::int64_t end = now_us() + static_cast<std::int64_t>(seconds * 1e6);
  while (now_us() < end) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    group.check();
  }
}

/// Kibibytes of the host's segment that this process has touched.
int touched_kib() {
  std::ifstream maps("/proc/self/smaps");
  bool ours = false;
  int sum = 0;
  for (std::string line; std::getline(maps, line);) {
    // "address-address rights ... name" begins a mapping, "Rss: n kB" is one of its lines.
    if (line.find("memfd:") != std::string::npos)
      ours = line.find(":lockstep") != std::string::npos;
    if (!ours || line.rfind("Rss:", 0) != 0) continue;
    sum += std::stoi(line.substr(4));
    ours = false;
  }
  return sum;
}

void share(Session& group, std::size_t bytes) {
  std::vector<std::uint8_t> out(bytes * static_cast<std::size_t>(group.size()));
  std::vector<std::uint8_t> in(out.size());
  group.all_to_all(std::span<const std::uint8_t>(out), std::span(in));
  say(fmt::format("touched {} KiB", touched_kib()));
  group.barrier();
}

/// Kibibytes that the host's segment holds, of all ranks together.
std::int64_t held_kib() {
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    if (std::filesystem::read_symlink(entry.path(), gone).string().find("memfd:lockstep") ==
        std::string::npos) {
      continue;
    }
    struct stat file {};
    if (::stat(entry.path().c_str(), &file) == 0) return file.st_blocks / 2;
  }
  return 0;
}

/// Microseconds that this process has spent on a core.
std::int64_t busy_us() {
  timespec used{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
  return std::int64_t{used.tv_sec} * 1'000'000 + used.tv_nsec / 1'000;
}

/// Kibibytes of memory that only this process has.
std::int64_t private_kib() {
  std::ifstream status("/proc/self/status");
  const std::string name = "RssAnon:";
  for (std::string line; std::getline(status, line);) {
    if (line.rfind(name, 0) == 0) return std::stoll(line.substr(name.size()));
  }
  return 0;
}

std::ptrdiff_t open_descriptors() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return std::distance(begin(all), end(all)) - 1;  // but for that of the iterator
}

void scale(Session& group, double idle_seconds, int victim) {
  say(fmt::format("joined at {}", now_us()));
  const auto timed = [](const char* what, const auto& run) {
    const std::int64_t began = now_us();
    run();
    say(fmt::format("first {} took {}", what, now_us() - began));
  };
  float sum = 1;
  timed("all_reduce", [&] { group.all_reduce(Op::sum, std::span(&sum, 1)); });
  std::vector<int> ranks(static_cast<std::size_t>(group.size()));
  const int own = group.rank();
  timed("all_gather", [&] { group.all_gather(std::span(&own, 1), std::span(ranks)); });
  std::optional<Session> part;
  timed("split", [&] {
    part = group.split({.color = group.rank() % 2});
    part->barrier();
  });
  if (sum != static_cast<float>(group.size()) || ranks.back() != group.size() - 1) {
    throw std::runtime_error("wrong sums");
  }
  part.reset();
  group.barrier();
  const std::int64_t busy = busy_us();
  const std::int64_t since = now_us();
  std::this_thread::sleep_for(std::chrono::duration<double>(idle_seconds));
  say(fmt::format("idle: busy {} of {}", busy_us() - busy, now_us() - since));
  say(fmt::format("holds {} descriptors", open_descriptors()));
  say(fmt::format("private memory {} KiB", private_kib()));
  group.barrier();
  say(fmt::format("segment {} KiB", held_kib()));
  group.barrier();
  say("ready");
  if (victim < 0) return;
  if (group.rank() == victim) std::this_thread::sleep_for(std::chrono::seconds(60));
  group.barrier();
}

/// Kibibytes of this process's heap that are in use; 0 with a sanitizer's.
std::size_t heap_kib() {
  const struct mallinfo2 heap = ::mallinfo2();
  return (heap.uordblks + heap.hblkhd) / 1024;
}

void split_often(Session& group, int rounds, bool keep) {
  group.barrier();
  const std::int64_t before = held_kib();
  const std::size_t heap_before = heap_kib();
  std::int64_t early = 0;
  std::size_t heap_early = 0;
  std::vector<Session> kept;
  for (int round = 0; round < rounds; ++round) {
    Session part = group.split({.color = 0});
    std::vector<int> message(100, group.rank() == 0 ? round : -1);
    if (group.rank() == 0) part.send(std::span(message), coll::To{1});
    if (group.rank() == 1) part.receive(std::span(message), coll::From{0});
    if (group.rank() == 1 && message[99] != round) throw std::runtime_error("a wrong message");
    if (keep) kept.push_back(std::move(part));
    if (round == std::min(rounds - 1, 100)) {
      early = held_kib();
      heap_early = heap_kib();
    }
  }
  const std::int64_t open = held_kib();
  const std::size_t heap_open = heap_kib();
  group.barrier();
  for (Session& each : kept) each.close();
  group.barrier();
  // What is closed goes when all members have closed it, which the next group looks for.
  const Session last = group.split({.color = 0});
  group.barrier();
  say(fmt::format(
      "held {} KiB before, {} early, {} open, {} closed; heap {} before, {} early, {} open", before,
      early, open, held_kib(), heap_before, heap_early, heap_open));
  group.barrier();
}

/// Rank 1 asks for what rank 0 sends only when that has had its time to be over.
void send_unasked(Session& group) {
  const coll::Memory shared = group.allocate(sizeof(int) * 300'000);
  for (const bool in_session : {false, true}) {
    for (const std::size_t count : {0, 1, 1000, 300'000}) {
      std::vector<int> plain(count);
      const std::span<int> message = in_session ? shared.as<int>().first(count) : std::span(plain);
      std::fill(message.begin(), message.end(), 7 - group.rank());
      std::optional<coll::Work> sent;
      if (group.rank() == 0) sent = group.start_send(message, coll::To{1});
      group.barrier();
      if (sent && sent->wait_for(std::chrono::milliseconds(50))) {
        throw std::runtime_error(fmt::format("{} elements were sent to nobody", count));
      }
      group.barrier();
      if (group.rank() == 1) group.receive(message, coll::From{0});
      if (sent) sent->wait();
      if (group.rank() == 1 &&
          std::any_of(message.begin(), message.end(), [](int x) { return x != 7; })) {
        throw std::runtime_error("a wrong message");
      }
      group.barrier();
    }
  }
  say("sent");
}

/// Equal sums from memory of one kind and the other in turns, by rank r with r + 1 replicas.
void alternate(Session& group, std::size_t count) {
  const int own = group.rank() + 1;
  const coll::Memory shared = group.allocate(static_cast<std::size_t>(own) * count * sizeof(float));
  std::vector<float> plain(static_cast<std::size_t>(own) * count);
  const auto total = static_cast<float>(group.replicas() * (group.replicas() + 1)) / 2;
  for (int round = 0; round < 12; ++round) {
    const bool in_session = round / 2 % 2 != 0;  // so that calls repeat and differ
    const std::span<float> all = in_session ? shared.as<float>() : std::span(plain);
    std::vector<coll::ConstBuffer> inputs;
    for (int i = 0; i < own; ++i) {
      const std::span<float> each = all.subspan(static_cast<std::size_t>(i) * count, count);
      std::fill(each.begin(), each.end(), static_cast<float>(group.first_replica() + i + 1));
      inputs.emplace_back(each);
    }
    const std::span<float> sum = all.first(count);
    group.all_reduce(Op::sum, std::span<const coll::ConstBuffer>(inputs), sum);
    if (std::any_of(sum.begin(), sum.end(), [&](float x) { return x != total; })) {
      throw std::runtime_error(fmt::format("round {}: {} instead of {}", round, sum[0], total));
    }
  }
  group.barrier();
  say("done");
}

/// Slices of one sum at the same time, each by a thread with a subgroup of all ranks, by rank r
/// with r + 1 replicas. Memory of the group is reached in place from there, too.
void add_slices(Session& group, std::size_t count) {
  constexpr std::size_t kLanes = 3;
  const auto own = static_cast<std::size_t>(group.rank()) + 1;
  const coll::Memory memory = group.allocate(own * count * sizeof(float));
  const std::span<float> all = memory.as<float>();
  const auto inputs_of = [&](std::size_t begin, std::size_t length) {
    std::vector<coll::ConstBuffer> inputs;
    for (std::size_t i = 0; i < own; ++i) {
      inputs.emplace_back(all.subspan(i * count + begin, length));
    }
    return inputs;
  };
  const auto add = [&](Session& session, std::size_t begin, std::size_t end) {
    const auto inputs = inputs_of(begin, end - begin);
    session.all_reduce(Op::sum, std::span<const coll::ConstBuffer>(inputs),
                       all.subspan(begin, end - begin));
  };
  const auto fill = [&](std::size_t round) {
    for (std::size_t i = 0; i < all.size(); ++i) {
      const std::size_t replica = static_cast<std::size_t>(group.first_replica()) + i / count;
      all[i] = 1.0F / static_cast<float>(1 + i % count + 7 * replica + round);
    }
  };
  std::vector<Session> sessions;
  while (sessions.size() < kLanes) sessions.push_back(group.split({}));
  for (std::size_t round = 0; round < 20; ++round) {
    fill(round);
    add(group, 0, count);
    const std::vector<float> expected(all.begin(), all.begin() + static_cast<long>(count));
    fill(round);
    {
      std::vector<std::jthread> threads;
      for (std::size_t lane = 0; lane < kLanes; ++lane) {
        threads.emplace_back(
            [&, lane] { add(sessions[lane], count * lane / kLanes, count * (lane + 1) / kLanes); });
      }
    }
    if (!std::equal(expected.begin(), expected.end(), all.begin())) {
      throw std::runtime_error(fmt::format("round {}: other bits in slices", round));
    }
  }
  group.barrier();
  const bool in_place = group.history().find("by one_pass") != std::string::npos;
  for (const Session& session : sessions) {
    if (in_place != (session.history().find("by one_pass") != std::string::npos)) {
      throw std::runtime_error("slices went another way than the whole");
    }
  }
  say(in_place ? "done in place" : "done");
}

/// Rounds without an end, for a failure to come into.
[[noreturn]] void go_on(Session& group) {
  std::vector<float> values(1000);
  for (std::int64_t round = 0;; ++round) {
    group.all_reduce(Op::sum, std::span(values));
    if (round == 3) say("working");
  }
}

/// That rank goes before the others have done with it, and does not wait for them.
void leave(Session& group, int leaver, const std::string& how) {
  const bool leaves = group.rank() == leaver;
  if (how == "half" || how == "all") {
    std::optional<Session> subgroup = group.split({.color = 0, .key = -group.rank()});
    group.barrier();
    if (leaves) {
      subgroup.reset();
      say("left");
      if (how == "all") return;
      idle(group, 20);  // it hears the others' verdict
    }
    subgroup->barrier();
    return;
  }
  if (how == "others") {
    Session part = group.split({.color = leaves ? 1 : 0});
    if (leaves) return say("left");
    go_on(part);
  }
  group.barrier();
  if (leaves) return say("left");
  if (how != "message") return group.barrier();
  float value = 0;
  group.receive(std::span(&value, 1), coll::From{leaver});
}

/// The two have exchanged no message before, so the pair of them is known to the other one only.
void part(Session& group, int leaver, const std::string& direction, int other) {
  std::optional<Session> subgroup = group.split({.color = 0, .key = -group.rank()});
  const int peer = group.size() - 1 - leaver;  // as the subgroup calls it
  if (group.rank() == leaver) {
    idle(group, 0.1);  // the other one waits meanwhile
    say(fmt::format("left at {}", now_us()));
    subgroup.reset();
  }
  if (group.rank() == other) {
    std::vector<float> values(10'000'000);  // more than any buffer on the way takes
    if (direction == "send") {
      subgroup->send(std::span(values), coll::To{peer});
    } else {
      subgroup->receive(std::span(values), coll::From{peer});
    }
  }
  idle(group, 20);
}

/// A child that holds every socket of this process open and does nothing else, until somebody ends
/// it or its time is over.
void leave_orphan() {
  const pid_t child = ::fork();
  if (child == 0) {
    constexpr unsigned kLongest = 30;  // seconds; the signal ends it
    ::alarm(kLongest);
    for (;;) ::pause();
  }
  say(fmt::format("orphan {}", child));
}

/// A child that knows nothing of processes: it makes a call, and lets its session go.
void fork_child(Session& group) {
  group.check();
  const pid_t child = ::fork();
  if (child != 0) {
    int status = 0;
    ::waitpid(child, &status, 0);
    say(fmt::format("child {}", WIFEXITED(status) ? WEXITSTATUS(status) : -1));
    return;
  }
  constexpr unsigned kLongest = 10;
  ::alarm(kLongest);
  int code = 1;
  try {
    group.barrier();
  } catch (const InvalidUsage& error) {
    code = error.code() == Code::failed_precondition ? 0 : 2;
  }
  { const Session gone = std::move(group); }
  std::exit(code);  // with destructors of what is static: they must not wait for threads it has not
}

/// From now on nobody reads what is logged here.
void close_the_log(const std::string& how) {
  if (how == "sink") {
    set_log_sink([](LogLevel, std::string_view) {
      for (;;) ::pause();
    });
    return;
  }
  int ends[2];
  if (::pipe2(ends, O_NONBLOCK | O_CLOEXEC) != 0) throw std::runtime_error("no pipe");
  const std::vector<char> filling(4096, '.');
  while (::write(ends[1], filling.data(), filling.size()) > 0) {
  }
  ::fcntl(ends[1], F_SETFL, 0);
  ::dup2(ends[1], STDERR_FILENO);  // this process itself keeps the other end open
}

/// What the odd rank does once all have worked together.
void break_off(Session& group, const std::string& how) {
  say(how);
  if (how == "abort") return group.abort("the user had enough");
  if (how == "throw") throw std::runtime_error("a bug of the user's");
  std::vector<float> values(1000);
  const coll::Work unfinished = group.start_all_reduce(Op::sum, std::span(values));
  std::exit(7);
}

}  // namespace

std::int64_t now_us() {
  return std::chrono::duration_cast<std::chrono::microseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

void mute() {
  namespace fs = std::filesystem;
  for (const auto& entry : fs::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    const std::string target = fs::read_symlink(entry.path(), gone).string();
    if (target.rfind("socket:", 0) != 0) continue;
    ::shutdown(std::stoi(entry.path().filename().string()), SHUT_WR);
  }
}

void say(const std::string& line) {
  fmt::print("{}\n", line);
  std::fflush(stdout);
}

void play(Session& group, const std::string& scenario) {
  std::istringstream words(scenario);
  const auto next = [&](auto value) {
    words >> value;
    return value;
  };
  const auto name = next(std::string());
  if (name == "exercise") {
    const Buffers buffers = next(std::string()) == "own" ? Buffers::own : Buffers::of_session;
    for (const std::string& line : exercise(group, buffers)) say("result " + line);
  } else if (name == "work") {
    const auto seconds = next(0.0);
    const auto count = next(std::size_t{0});
    work(group, seconds, count, next(std::string()) == "session");
  } else if (name == "fail") {
    fail(group, next(std::size_t{0}));
  } else if (name == "train") {
    const auto steps = next(0);
    train(group, steps, next(std::size_t{0}));
  } else if (name == "idle") {
    idle(group, next(0.0));
    group.barrier();
    say("done");
  } else if (name == "rest") {
    say("resting");
    std::this_thread::sleep_for(std::chrono::duration<double>(next(0.0)));
  } else if (name == "scale") {
    const auto seconds = next(0.0);
    int victim = -1;
    words >> victim;
    scale(group, seconds, words ? victim : -1);
  } else if (name == "share") {
    share(group, next(std::size_t{0}));
  } else if (name == "splits") {
    const auto rounds = next(0);
    split_often(group, rounds, next(std::string()) == "keep");
  } else if (name == "unasked") {
    send_unasked(group);
  } else if (name == "alternate") {
    alternate(group, next(std::size_t{0}));
  } else if (name == "slices") {
    add_slices(group, next(std::size_t{0}));
  } else if (name == "mismatch") {
    std::vector<float> values(group.rank() == next(0) ? 11 : 10);
    group.barrier();
    group.all_reduce(Op::sum, std::span(values));
  } else if (name == "described") {
    std::vector<float> values(group.rank() == next(0) ? 11 : 10);
    const std::string description = fmt::format("gather float32[{}, 1]", values.size());
    group.barrier();
    group.all_reduce(Op::sum, std::span(values), {.description = description});
  } else if (name == "leave") {
    const auto rank = next(0);
    leave(group, rank, next(std::string()));
  } else if (name == "part") {
    const auto leaver = next(0);
    const auto direction = next(std::string());
    part(group, leaver, direction, next(0));
  } else if (name == "stuck") {
    const auto rank = next(0);
    const auto size = next(0);
    std::optional<Session> part;
    if (size > 0) part = group.split({.color = group.rank() < size ? 0 : 1, .key = -group.rank()});
    group.barrier();
    if (group.rank() == rank || (part && group.rank() >= size)) return idle(group, 20);
    float value = 0;
    (part ? *part : group).all_reduce(Op::sum, std::span(&value, 1));
  } else if (name == "unread") {
    const auto rank = next(0);
    if (group.rank() == rank) close_the_log(next(std::string()));
    idle(group, 4);
    group.barrier();
    say("done");
  } else if (name == "orphan") {
    group.barrier();
    if (group.rank() == next(0)) leave_orphan();
    go_on(group);
  } else if (name == "fork") {
    group.barrier();
    if (group.rank() == next(0)) fork_child(group);
    work(group, 0.2, 1000, false);
  } else if (name == "late") {
    group.barrier();
    say("closing");
    if (group.rank() == next(0)) std::this_thread::sleep_for(std::chrono::seconds(30));
  } else if (name == "mute") {
    const auto rank = next(0);
    const auto then = next(std::string());
    group.barrier();
    if (group.rank() == rank) mute();
    if (then == "idle") return idle(group, 20);
    if (then != "late") go_on(group);
    if (group.rank() == rank) std::this_thread::sleep_for(std::chrono::seconds(30));
  } else if (name == "abort" || name == "throw" || name == "exit") {
    std::vector<float> values(1000);
    group.all_reduce(Op::sum, std::span(values));
    if (group.rank() == next(0)) break_off(group, name);
    go_on(group);
  } else {
    throw InvalidUsage("unknown scenario " + scenario);
  }
}

}  // namespace lockstep::processes
