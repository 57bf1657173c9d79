#include "bench/peers/group.h"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <system_error>
#include <thread>

#include "bench/peers/board.h"
#include "bench/peers/orders_socket.h"

namespace lockstep::bench::peers {
namespace {

using std::chrono::steady_clock;

constexpr auto kStart = std::chrono::seconds(60);
constexpr auto kSilence = std::chrono::seconds(120);
constexpr auto kLook = std::chrono::seconds(1);
constexpr auto kStop = std::chrono::seconds(5);

}  // namespace

Group::Group(Launch launch, std::string directory)
    : launch_(std::move(launch)), directory_(std::move(directory)) {
  ranks_.resize(static_cast<std::size_t>(launch_.ranks));
  Board::create(fmt::format("{}/{}.board", directory_, launch_.name));
  Board::create(fmt::format("{}/{}.second_board", directory_, launch_.name));
  try {
    start();
  } catch (...) {
    stop();
    throw;
  }
}

Group::~Group() { stop(); }

void Group::start() {
  const int listener = listen_at(fmt::format("{}/{}.orders", directory_, launch_.name));
  const auto until = steady_clock::now() + kStart;
  try {
    for (const Command& command : launch_.commands) {
      children_.emplace_back(command, launch_.environment,
                             fmt::format("{}/{}.log", directory_, launch_.name));
    }
    // A rank connects first and says hello when its contestant is ready.
    for (int i = 0; i < launch_.ranks; ++i) {
      while (!readable(listener, std::min(until, steady_clock::now() + kLook))) {
        check_children();
        if (steady_clock::now() >= until) fail("not all ranks have started");
      }
      const int socket = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
      if (socket < 0) fail("a rank did not connect");
      ucred peer{};
      socklen_t length = sizeof(peer);
      getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &length);
      ranks_[static_cast<std::size_t>(i)] = {.socket = socket, .process = peer.pid};
    }
  } catch (...) {
    close(listener);
    throw;
  }
  close(listener);
  std::vector<Rank> by_rank(ranks_.size());
  for (const Rank& rank : ranks_) {
    Hello hello;
    if (!readable(rank.socket, until)) fail("a rank is not ready");
    if (recv(rank.socket, &hello, sizeof(hello), 0) != sizeof(hello) ||
        hello.rank >= by_rank.size())
      fail("a rank ended while it started");
    by_rank[hello.rank] = rank;
  }
  ranks_ = std::move(by_rank);
}

void Group::check_children() {
  for (Child& child : children_) {
    if (child.ended()) fail("a process ended");
  }
}

void Group::send_all(const Order& order) {
  for (const Rank& rank : ranks_) {
    if (send(rank.socket, &order, sizeof(order), MSG_NOSIGNAL) < 0) fail("a rank is gone");
  }
}

Answer Group::receive(Rank& rank) {
  const auto until = steady_clock::now() + kSilence;
  while (!readable(rank.socket, std::min(until, steady_clock::now() + kLook))) {
    check_children();  // the others of a dead rank may wait for it for long
    if (steady_clock::now() >= until) fail("no answer from a rank");
  }
  Answer answer;
  if (recv(rank.socket, &answer, sizeof(answer), 0) != sizeof(answer)) fail("a rank ended");
  if (answer.error[0] != '\0') fail(answer.error.data());
  return answer;
}

std::vector<double> Group::measure(const Order& order) {
  send_all(order);
  std::vector<Answer> answers;
  for (Rank& rank : ranks_) answers.push_back(receive(rank));
  std::vector<double> seconds;
  for (std::uint32_t i = 0; i < answers.front().stretches; ++i) {
    Answer::Stretch whole = answers.front().times[i];
    for (const Answer& answer : answers) {
      whole.start_ns = std::min(whole.start_ns, answer.times[i].start_ns);
      whole.end_ns = std::max(whole.end_ns, answer.times[i].end_ns);
    }
    seconds.push_back(static_cast<double>(whole.end_ns - whole.start_ns) * 1e-9 / order.loops);
  }
  return seconds;
}

void Group::forget() {
  send_all({.kind = Order::Kind::forget, .job = {}});
  for (Rank& rank : ranks_) receive(rank);
}

void Group::stop() noexcept {
  const Order quit{.kind = Order::Kind::quit, .job = {}};
  for (const Rank& rank : ranks_) {
    if (rank.socket >= 0) send(rank.socket, &quit, sizeof(quit), MSG_NOSIGNAL | MSG_DONTWAIT);
  }
  const auto until = steady_clock::now() + kStop;
  const auto all_ended = [&] {
    return std::all_of(children_.begin(), children_.end(),
                       [](Child& child) { return child.ended(); });
  };
  bool failed = std::any_of(ranks_.begin(), ranks_.end(), [](Rank& r) { return r.socket < 0; });
  while (!failed && !all_ended() && steady_clock::now() < until)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  for (const Rank& rank : ranks_) {
    if (rank.socket < 0) continue;
    // Whoever still holds the other end is that rank and no newer process of its number.
    pollfd end{.fd = rank.socket, .events = 0, .revents = 0};
    if (rank.process > 0 && poll(&end, 1, 0) == 0) ::kill(rank.process, SIGKILL);
    close(rank.socket);
  }
  ranks_.clear();
  children_.clear();  // kills what is left
}

void Group::fail(const std::string& what) {
  const std::string said = tail(fmt::format("{}/{}.log", directory_, launch_.name));
  throw GroupFailed(said.empty() ? what : fmt::format("{}; it said:\n{}", what, said));
}

}  // namespace lockstep::bench::peers
