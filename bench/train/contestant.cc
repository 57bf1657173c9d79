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
#include <fstream>
#include <iterator>
#include <sstream>
#include <system_error>
#include <thread>

namespace lockstep::bench::train {
namespace {

using std::chrono::steady_clock;

constexpr auto kSilence = std::chrono::seconds(120);
constexpr auto kLook = std::chrono::seconds(1);
constexpr auto kStop = std::chrono::seconds(5);

/// The end of a file: what a program said last.
std::string tail(const std::string& path) {
  constexpr std::size_t kMost = 1500;
  std::ifstream file(path);
  std::string text{std::istreambuf_iterator<char>(file), {}};
  if (text.size() > kMost) text.erase(0, text.size() - kMost);
  return text;
}

int listen_at(const std::string& path) {
  const int listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof(address.sun_path) - 1);
  if (listener < 0 || bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0 ||
      listen(listener, 16) != 0)
    throw std::system_error(errno, std::generic_category(), "cannot listen at " + path);
  return listener;
}

/// Until there is something to read. False when the time is over.
bool readable(int descriptor, steady_clock::time_point until) {
  for (;;) {
    peers::check_interrupted();
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - steady_clock::now());
    if (left.count() <= 0) return false;
    pollfd wanted{.fd = descriptor, .events = POLLIN, .revents = 0};
    if (poll(&wanted, 1, static_cast<int>(left.count())) > 0) return true;
  }
}

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
