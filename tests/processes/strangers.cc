#include "tests/processes/strangers.h"

#include <algorithm>
#include <chrono>
#include <deque>
#include <memory>
#include <random>
#include <span>
#include <string_view>

#include "base/clock.h"
#include "lockstep/error.h"
#include "sys/posix_net.h"
#include "transport/keys.h"
#include "transport/tls.h"

namespace lockstep::processes {
namespace {

using namespace std::chrono_literals;
using Bytes = std::vector<std::byte>;
using transport::TlsConnection;

constexpr auto kHold = 20ms;     // after it has said what it has to say
constexpr auto kLorisHold = 2s;  // of those that dribble
constexpr auto kLorisByte = 100ms;
constexpr std::size_t kMostOpen = 600;

Bytes bytes_of(std::string_view text) {
  const auto view = std::as_bytes(std::span(text));
  return {view.begin(), view.end()};
}

Bytes huge_length() {
  Bytes bytes(64, std::byte{0xff});
  bytes[0] = std::byte{0x16};
  bytes[1] = std::byte{0x03};
  bytes[2] = std::byte{0x01};
  return bytes;
}

enum class Kind : int { garbage, http, huge, loris, half, wrong_key, replay, hang_up };
constexpr int kKinds = 8;

struct Caller {
  std::unique_ptr<sys::Connection> connection;
  Bytes words;
  std::size_t said = 0;
  Time leaves;
  Time speaks;  // next, if it dribbles
  bool slow = false;

  /// Says what it can; a slow one a byte.
  void speak(Time now) {
    if (said == words.size() || now < speaks) return;
    const std::size_t most = slow ? 1 : words.size() - said;
    const auto [moved, state] = connection->write(std::span(words).subspan(said, most));
    said += moved;
    if (slow) speaks = now + kLorisByte;
    if (state != sys::Transfer::State::open) said = words.size();
  }
};

/// One of two ends that hand each other bytes; keeps what is written to it.
class Recorder final : public sys::Connection {
 public:
  using Shared = std::shared_ptr<Bytes>;
  Recorder(Shared from, Shared to) : from_(std::move(from)), to_(std::move(to)) {}
  sys::Transfer read(std::span<std::byte> into) noexcept override {
    const std::size_t size = std::min(into.size(), from_->size() - read_);
    std::copy_n(from_->begin() + static_cast<std::ptrdiff_t>(read_), size, into.begin());
    read_ += size;
    return {size, sys::Transfer::State::open};
  }
  sys::Transfer write(std::span<const std::byte> from) noexcept override {
    to_->insert(to_->end(), from.begin(), from.end());
    return {from.size(), sys::Transfer::State::open};
  }
  void shutdown_write() noexcept override {}
  [[nodiscard]] Status error() const override { return {}; }
  [[nodiscard]] std::string peer() const override { return "recorder"; }

 private:
  Shared from_;
  Shared to_;
  std::size_t read_ = 0;
};

}  // namespace

std::vector<std::byte> record_greeting(const std::string& key, const std::string& identity) {
  const auto job = transport::JobKey::from_text(key, "the key");
  const auto pair = transport::Pair::parse(identity);
  if (!pair) throw InvalidUsage("not an identity: " + identity);
  const auto said = std::make_shared<Bytes>();
  const auto answered = std::make_shared<Bytes>();
  const transport::TlsClient client;
  const transport::TlsServer server([&](std::string_view) { return derive(job, *pair); });
  const auto caller =
      client.connect(std::make_unique<Recorder>(answered, said), identity, derive(job, *pair));
  const auto called = server.accept(std::make_unique<Recorder>(said, answered));
  for (int turn = 0; turn < 10; ++turn) {
    (void)caller->handshake();
    (void)called->handshake();
  }
  if (called->handshake() != TlsConnection::State::done) throw InternalError("no handshake");
  return *said;
}

Strangers::Strangers(StrangersOptions options)
    : options_(std::move(options)),
      targets_(options_.targets),
      thread_([this](const std::stop_token& stop) { run(stop); }) {}

Strangers::~Strangers() = default;

void Strangers::aim(std::vector<std::string> targets) {
  const MutexLock lock(mutex_);
  targets_ = std::move(targets);
}

int Strangers::stop() {
  thread_.request_stop();
  if (thread_.joinable()) thread_.join();
  return thrown();
}

void Strangers::run(const std::stop_token& stop) {
  sys::PosixNetwork network;
  const MonotonicClock clock;
  const transport::TlsClient client;
  std::mt19937 random(1);
  Bytes garbage(256);
  for (std::byte& byte : garbage) byte = static_cast<std::byte>(random());
  const Bytes http = bytes_of("GET / HTTP/1.1\r\nHost: rank0\r\nUser-Agent: scanner\r\n\r\n");
  const Bytes huge = huge_length();
  Bytes half = options_.recorded;
  half.resize(std::min<std::size_t>(half.size(), 100));
  std::deque<Caller> callers;
  const Time began = clock.now();
  while (!stop.stop_requested()) {
    const Time now = clock.now();
    const double due = std::chrono::duration<double>(now - began).count() * options_.per_second;
    while (thrown_.load() < static_cast<int>(due)) {
      const int number = thrown_.fetch_add(1);
      const auto kind = static_cast<Kind>(number % kKinds);
      const std::string target = [&] {
        const MutexLock lock(mutex_);
        return targets_[static_cast<std::size_t>(number / kKinds) % targets_.size()];
      }();
      Caller caller;
      caller.connection = network.connect(target);
      caller.leaves = now + kHold;
      caller.speaks = now;
      switch (kind) {
        case Kind::garbage:
          caller.words = garbage;
          break;
        case Kind::http:
          caller.words = http;
          break;
        case Kind::huge:
          caller.words = huge;
          break;
        case Kind::loris:
          caller.words = options_.recorded;
          caller.slow = true;
          caller.leaves = now + kLorisHold;
          break;
        case Kind::half:
          caller.words = half;
          caller.leaves = now + 10 * kHold;
          break;
        case Kind::wrong_key:
          caller.connection = client.connect(
              std::move(caller.connection), options_.identity,
              transport::PairKey(std::span<const std::byte, transport::PairKey::kBytes>(
                  garbage.data(), transport::PairKey::kBytes)));
          caller.words = http;
          break;
        case Kind::replay:
          caller.words = options_.recorded;
          break;
        case Kind::hang_up:
          continue;
      }
      callers.push_back(std::move(caller));
    }
    for (Caller& caller : callers) caller.speak(now);
    while (callers.size() > kMostOpen) callers.pop_front();
    std::erase_if(callers, [&](const Caller& caller) { return now >= caller.leaves; });
    std::this_thread::sleep_for(1ms);
  }
}

}  // namespace lockstep::processes
