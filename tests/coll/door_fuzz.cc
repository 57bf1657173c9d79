// Any bytes a caller may send to a door, in pieces of any size: the door lets in who sent a good
// Hello and nobody else, keeps what lies behind it in the stream, and never waits for more than it
// said it would. The first byte chooses the size of the pieces, the second how much of a good
// greeting goes before the rest.
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "coll/door.h"
#include "lockstep/log.h"
#include "wire/frame.h"
#include "wire/hello.h"

namespace {

using lockstep::Deadline;
using lockstep::Status;
using lockstep::Time;
using lockstep::coll::Door;
using lockstep::coll::Greeting;
using lockstep::sys::Connection;
using lockstep::sys::Listener;
using lockstep::sys::Network;
using lockstep::sys::Poller;
using lockstep::sys::Transfer;
namespace wire = lockstep::wire;

/// Bytes in memory; what is written is counted.
class Memory final : public Connection {
 public:
  Memory(std::vector<std::byte> bytes, std::size_t piece)
      : bytes_(std::move(bytes)), piece_(piece) {}

  Transfer read(std::span<std::byte> into) noexcept override {
    if (at_ == bytes_.size()) return {0, Transfer::State::closed};
    blocked_ = !blocked_;  // every second call finds nothing yet
    if (blocked_) return {};
    const std::size_t size = std::min({into.size(), piece_, bytes_.size() - at_});
    std::copy_n(bytes_.begin() + static_cast<std::ptrdiff_t>(at_), size, into.begin());
    at_ += size;
    return {size, Transfer::State::open};
  }
  Transfer write(std::span<const std::byte> from) noexcept override {
    return {from.size(), Transfer::State::open};
  }
  void shutdown_write() noexcept override {}
  [[nodiscard]] Status error() const override { return {}; }
  [[nodiscard]] std::string peer() const override { return "fuzz"; }
  [[nodiscard]] std::size_t taken() const noexcept { return at_; }

 private:
  std::vector<std::byte> bytes_;
  std::size_t piece_;
  std::size_t at_ = 0;
  bool blocked_ = false;
};

/// A network with one caller.
class OneCaller final : public Network {
 public:
  explicit OneCaller(std::unique_ptr<Connection> caller) : caller_(std::move(caller)) {}
  std::unique_ptr<Listener> listen(const std::string& /*address*/) override {
    class Once final : public Listener {
     public:
      explicit Once(std::unique_ptr<Connection>& caller) : caller_(caller) {}
      std::unique_ptr<Connection> accept() override { return std::move(caller_); }
      [[nodiscard]] std::string address() const override { return "fuzz"; }

     private:
      std::unique_ptr<Connection>& caller_;
    };
    return std::make_unique<Once>(caller_);
  }
  std::unique_ptr<Connection> connect(const std::string& /*address*/) override { std::abort(); }
  std::unique_ptr<Poller> poller() override { std::abort(); }

 private:
  std::unique_ptr<Connection> caller_;
};

/// What a rank of ours says first.
std::vector<std::byte> good_greeting() {
  wire::Hello hello;
  hello.rank = 1;
  hello.size = 2;
  hello.set_host_name("node1");
  hello.set_address("node1:4000");
  const auto payload = wire::encode(hello);
  std::vector<std::byte> bytes(wire::kHeaderBytes);
  wire::encode({.type = wire::FrameType::hello,
                .generation = 0,
                .sequence = 0,
                .length = static_cast<std::uint32_t>(payload.size())},
               std::span(bytes).first<wire::kHeaderBytes>());
  bytes.insert(bytes.end(), payload.begin(), payload.end());
  return bytes;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const std::vector<std::byte> greeting = [] {
    lockstep::set_log_sink([](lockstep::LogLevel, std::string_view) {});
    return good_greeting();
  }();
  if (size < 3) return 0;
  const std::size_t piece = 1 + data[0];
  // Up to the end of the header often, since nobody guesses its check.
  const std::size_t kept = data[1] % 2 == 0 ? wire::kHeaderBytes * (data[1] > 0 ? 1 : 0)
                                            : greeting.size() * data[1] / 255;
  std::vector<std::byte> bytes(greeting.begin(),
                               greeting.begin() + static_cast<std::ptrdiff_t>(kept));
  const auto rest = std::as_bytes(std::span(data, size)).subspan(2);
  bytes.insert(bytes.end(), rest.begin(), rest.end());

  auto caller = std::make_unique<Memory>(bytes, piece);
  const Memory& stream = *caller;
  OneCaller network(std::move(caller));
  Door door(network, "fuzz");
  Time now{std::chrono::seconds(1)};
  for (int turn = 0; turn < 100; ++turn) {
    const auto visitor = door.next(now);
    if (visitor) {
      const std::size_t whole = wire::kHeaderBytes + sizeof(wire::Hello);
      wire::Hello again;
      const auto payload = std::span(bytes).subspan(wire::kHeaderBytes);
      if (stream.taken() != whole || payload.size() < sizeof(wire::Hello)) std::abort();
      if (!wire::decode(payload.first<sizeof(wire::Hello)>(), again).ok()) std::abort();
      if (!(again == visitor->hello)) std::abort();
      return 0;
    }
    if (door.next_look() == Time::max()) return 0;  // turned away
    now = std::max(now + std::chrono::milliseconds(1), door.next_look());
    if (now > Time{std::chrono::seconds(20)}) std::abort();
  }
  return 0;
}
