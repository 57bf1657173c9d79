#include "bench/peers/rank_main.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <map>
#include <stdexcept>
#include <system_error>

#include "bench/peers/board.h"
#include "bench/support/paired.h"

namespace lockstep::bench::peers {
namespace {

struct Networks {
  int first = -1;
  int entered = -1;
};
Networks& networks() {
  static Networks both;
  return both;
}

[[noreturn]] void fail(const std::string& what) {
  throw std::system_error(errno, std::generic_category(), what);
}

int rank_from_environment() {
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMI_RANK"}) {
    if (const char* value = std::getenv(name)) return std::atoi(value);
  }
  throw std::runtime_error("no --rank, and no launcher's environment that tells it");
}

RankOptions parse(int argc, char** argv) {
  RankOptions options;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string name = argv[i];
    const std::string value = argv[i + 1];
    if (name == "--directory") {
      options.directory = value;
    } else if (name == "--name") {
      options.name = value;
    } else if (name == "--variant") {
      options.variant = value;
    } else if (name == "--ranks") {
      options.ranks = std::stoi(value);
    } else if (name == "--rank") {
      options.rank = std::stoi(value);
    } else if (name == "--network") {
      options.network = value;
    } else if (name == "--addresses") {
      options.addresses = value;
    } else {
      throw std::runtime_error("unknown option " + name);
    }
  }
  if (options.directory.empty() || options.name.empty())
    throw std::runtime_error("this program is started by bench_peers");
  if (options.rank < 0) options.rank = rank_from_environment();
  return options;
}

void enter_network(const RankOptions& options) {
  if (options.network.empty()) return;
  const std::string path = fmt::format("/run/netns/{}{}", options.network, options.rank);
  networks().first = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
  networks().entered = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (networks().first < 0 || networks().entered < 0) fail("cannot open " + path);
  if (setns(networks().entered, CLONE_NEWNET) != 0) fail("cannot enter " + path);
}

int connect_to_driver(const RankOptions& options) {
  const int socket = ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  const std::string path = fmt::format("{}/{}.orders", options.directory, options.name);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof(address.sun_path) - 1);
  if (socket < 0 || connect(socket, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0)
    fail("cannot connect to " + path);
  return socket;
}

std::int64_t now_ns() {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * std::int64_t{1'000'000'000} + time.tv_nsec;
}

class Loop {
 public:
  Loop(const RankOptions& options, Contestant& contestant)
      : options_(options),
        contestant_(contestant),
        board_(fmt::format("{}/{}.board", options.directory, options.name), options.ranks) {}

  void forget() { calls_.clear(); }

  Answer measure(const Order& order) {
    Call& call = ready(order.job);
    rewrite(call);
    meet();
    for (std::uint32_t i = 0; i < order.warmup; ++i) call.run();
    Answer answer;
    answer.stretches = std::min(order.stretches, kMaxStretches);
    for (std::uint32_t i = 0; i < answer.stretches; ++i) {
      if (order.loops == 1) {
        rewrite(call);
      } else {
        // Sums of sums would overflow.
        std::fill(call.memory().begin(), call.memory().end(), 0.0F);
      }
      meet();
      Answer::Stretch& times = answer.times[i];
      times.start_ns = now_ns();
      for (std::uint32_t loop = 0; loop < order.loops; ++loop) call.run();
      times.end_ns = now_ns();
    }
    contestant_.barrier();
    return answer;
  }

 private:
  /// The job's call; a new one has shown that it adds up.
  Call& ready(const Job& job) {
    std::unique_ptr<Call>& call = calls_[job];
    if (!call) {
      call = contestant_.prepare(job);
      rewrite(*call);
      meet();
      call->run();
      if (call->adds_up()) check(*call);
    }
    return *call;
  }

  void meet() {
    contestant_.barrier();
    board_.meet();
  }

  void rewrite(Call& call) const {
    std::fill(call.memory().begin(), call.memory().end(), static_cast<float>(options_.rank + 1));
  }

  void check(Call& call) const {
    const auto expected = static_cast<float>(options_.ranks * (options_.ranks + 1)) / 2;
    const std::span<float> memory = call.memory();
    const auto wrong =
        std::find_if(memory.begin(), memory.end(), [&](float x) { return x != expected; });
    if (wrong != memory.end()) {
      throw std::runtime_error(fmt::format("element {} of {} is {} instead of {}",
                                           wrong - memory.begin(), memory.size(), *wrong,
                                           expected));
    }
  }

  const RankOptions& options_;
  Contestant& contestant_;
  Board board_;
  std::map<Job, std::unique_ptr<Call>> calls_;
};

/// False: quit.
bool carry_out(const Order& order, Loop& loop, Answer& answer) {
  switch (order.kind) {
    case Order::Kind::measure:
      answer = loop.measure(order);
      return true;
    case Order::Kind::forget:
      loop.forget();
      return true;
    case Order::Kind::quit:
      return false;
  }
  return false;
}

void serve(const RankOptions& options, Contestant& contestant, int driver) {
  Loop loop(options, contestant);
  const Hello hello{.rank = static_cast<std::uint32_t>(options.rank)};
  if (send(driver, &hello, sizeof(hello), MSG_NOSIGNAL) < 0) fail("cannot answer the driver");
  for (;;) {
    Order order;
    const ssize_t got = recv(driver, &order, sizeof(order), 0);
    // Without a driver nobody waits for the peers either: do not let them hold us up.
    if (got != sizeof(order)) std::_Exit(1);
    Answer answer;
    bool go_on = true;
    try {
      go_on = carry_out(order, loop, answer);
    } catch (const std::exception& error) {
      std::strncpy(answer.error.data(), error.what(), answer.error.size() - 1);
    }
    if (!go_on) break;
    if (send(driver, &answer, sizeof(answer), MSG_NOSIGNAL) < 0) std::_Exit(1);
  }
  loop.forget();
}

}  // namespace

int first_network() noexcept { return networks().first; }
int entered_network() noexcept { return networks().entered; }

int rank_main(int argc, char** argv, const MakeContestant& make) {
  try {
    const RankOptions options = parse(argc, argv);
    enter_network(options);
    const int driver = connect_to_driver(options);
    const std::unique_ptr<Contestant> contestant = make(options);
    pin_one_of(options.ranks, options.rank);
    serve(options, *contestant, driver);
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}: {}\n", argv[0], error.what());
    // Not exit(): libraries that have half started may wait for their peers in it.
    std::fflush(stderr);
    std::_Exit(1);
  }
}

}  // namespace lockstep::bench::peers
