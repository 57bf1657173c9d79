#include "bench/train/contestant.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <sstream>
#include <system_error>
#include <thread>

#include "bench/peers/orders_socket.h"

namespace lockstep::bench::train {
namespace {

using peers::listen_at;
using peers::readable;
using peers::tail;
using std::chrono::steady_clock;

constexpr auto kSilence = std::chrono::seconds(120);
constexpr auto kLook = std::chrono::seconds(1);
constexpr auto kStop = std::chrono::seconds(5);

}  // namespace

std::string orders_path(const std::string& directory, const std::string& name) {
  return fmt::format("{}/{}.orders", directory, name);
}

Contestant::Contestant(const Launch& launch, const std::string& directory)
    : log_(fmt::format("{}/{}.log", directory, launch.name)),
      orders_(orders_path(directory, launch.name)),
      sockets_(launch.processes.size(), -1) {
  try {
    start(launch);
  } catch (...) {
    stop();
    throw;
  }
}

Contestant::~Contestant() { stop(); }

void Contestant::start(const Launch& launch) {
  const int listener = listen_at(orders_);
  try {
    for (const Launch::Process& process : launch.processes) {
      children_.emplace_back(process.command, process.environment, log_);
    }
    const auto until = steady_clock::now() + kSilence;
    for (std::size_t i = 0; i < sockets_.size(); ++i) {
      while (!readable(listener, std::min(until, steady_clock::now() + kLook))) {
        check_children();
        if (steady_clock::now() >= until) fail("not all processes have started");
      }
      const int socket = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
      if (socket < 0) fail("a process did not connect");
      std::string word;
      std::size_t rank = 0;
      std::istringstream hello(hear(socket));
      if (!(hello >> word >> rank >> parameters_) || word != "ready" || rank >= sockets_.size() ||
          sockets_[rank] >= 0) {
        close(socket);
        fail("a process ended while it started");
      }
      sockets_[rank] = socket;
    }
  } catch (...) {
    close(listener);
    throw;
  }
  close(listener);
}

std::string Contestant::hear(int socket) {
  const auto until = steady_clock::now() + kSilence;
  while (!readable(socket, std::min(until, steady_clock::now() + kLook))) {
    check_children();  // the others of a dead process may wait for it for long
    if (steady_clock::now() >= until) fail("no answer from a process");
  }
  std::array<char, 128> message{};
  const ssize_t got = recv(socket, message.data(), message.size(), 0);
  return {message.data(), got > 0 ? static_cast<std::size_t>(got) : 0};
}

void Contestant::check_children() {
  for (peers::Child& child : children_) {
    if (child.ended()) fail("a process ended");
  }
}

void Contestant::steps(int count) {
  const std::string order = fmt::format("steps {}", count);
  for (const int socket : sockets_) {
    if (send(socket, order.data(), order.size(), MSG_NOSIGNAL) < 0) fail("a process is gone");
  }
  for (const int socket : sockets_) {
    std::istringstream answer(hear(socket));
    std::string word;
    double loss = 0;
    if (!(answer >> word >> loss) || word != "done") fail("a process ended");
    if (socket == sockets_.front()) loss_ = loss;
  }
}

void Contestant::stop() noexcept {
  for (const int socket : sockets_) {
    if (socket >= 0) send(socket, "quit", 4, MSG_NOSIGNAL | MSG_DONTWAIT);
  }
  const bool started =
      std::all_of(sockets_.begin(), sockets_.end(), [](int socket) { return socket >= 0; });
  const auto until = steady_clock::now() + kStop;
  const auto all_ended = [&] {
    return std::all_of(children_.begin(), children_.end(),
                       [](peers::Child& child) { return child.ended(); });
  };
  while (started && !all_ended() && steady_clock::now() < until)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  children_.clear();  // kills what is left
  for (const int socket : sockets_) {
    if (socket >= 0) close(socket);
  }
  sockets_.clear();
  unlink(orders_.c_str());
}

void Contestant::fail(const std::string& what) const {
  const std::string said = tail(log_);
  throw ContestantFailed(said.empty() ? what : fmt::format("{}; it said:\n{}", what, said));
}

}  // namespace lockstep::bench::train
