// Any bytes a stranger may send to a server, in pieces of any size: he never gets in, and no more
// is read from him than a greeting. An input that starts with an odd byte is put behind the start
// of a real greeting, to reach what lies behind the first checks. If it starts with 2, 6, 10 ...
// its bytes are laid over the greeting of one who does know the key: no change of it gets in.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <span>
#include <vector>

#include "transport/client_greeting.h"
#include "transport/tls.h"

namespace {

using lockstep::Status;
using lockstep::sys::Connection;
using lockstep::sys::Transfer;
using lockstep::transport::ClientGreeting;
using lockstep::transport::PairKey;
using lockstep::transport::TlsClient;
using lockstep::transport::TlsConnection;
using lockstep::transport::TlsServer;

/// Bytes in memory; what is written is kept.
class Memory final : public Connection {
 public:
  Memory(std::span<const std::byte> bytes, std::size_t piece, std::vector<std::byte>& out,
         std::size_t& read)
      : left_(bytes), piece_(piece), out_(out), read_(read) {}

  Transfer read(std::span<std::byte> into) noexcept override {
    if (left_.empty()) return {0, Transfer::State::closed};
    // Every second call finds nothing yet.
    blocked_ = !blocked_;
    if (blocked_) return {};
    const std::size_t size = std::min({into.size(), piece_, left_.size()});
    std::copy_n(left_.begin(), size, into.begin());
    left_ = left_.subspan(size);
    read_ += size;
    return {size, Transfer::State::open};
  }
  Transfer write(std::span<const std::byte> from) noexcept override {
    out_.insert(out_.end(), from.begin(), from.end());
    return {from.size(), Transfer::State::open};
  }
  void shutdown_write() noexcept override {}
  [[nodiscard]] Status error() const override { return {}; }
  [[nodiscard]] std::string peer() const override { return "fuzz"; }

 private:
  std::span<const std::byte> left_;
  std::size_t piece_;
  std::vector<std::byte>& out_;
  std::size_t& read_;
  bool blocked_ = false;
};

PairKey key(std::byte fill) {
  std::array<std::byte, PairKey::kBytes> bytes;
  bytes.fill(fill);
  return PairKey(bytes);
}

/// What a client with that key sends first.
std::vector<std::byte> greeting_with(const PairKey& key) {
  std::vector<std::byte> out;
  std::size_t read = 0;
  const std::byte never[1] = {};
  const auto client = TlsClient().connect(std::make_unique<Memory>(never, 1, out, read),
                                          "lockstep1|1|client=1|server=0|data|job", key);
  (void)client->handshake();
  return out;
}

/// A whole greeting is taken apart without a look beyond its ends, whoever made it.
void take_apart(const std::vector<std::byte>& bytes) {
  const auto missing = ClientGreeting::missing(bytes);
  const auto greeting = ClientGreeting::parse(bytes);
  if (!greeting) return;
  if (missing != std::size_t{0} || bytes.size() > ClientGreeting::kMaxBytes) std::abort();
  const auto* const begin = reinterpret_cast<const char*>(bytes.data());
  const std::string_view name = greeting->identity();
  if (name.empty() || name.data() < begin) std::abort();
  if (name.data() + name.size() > begin + bytes.size()) std::abort();
  if (greeting->proves(key(std::byte{4}).bytes())) std::abort();  // nobody's
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const TlsServer server([](std::string_view who) -> std::optional<PairKey> {
    if (!lockstep::transport::Pair::parse(who)) return std::nullopt;
    return key(std::byte{1});
  });
  if (size < 3) return 0;
  const std::size_t piece = 1 + data[1];
  static const std::vector<std::byte> stranger = greeting_with(key(std::byte{2}));
  static const std::vector<std::byte> friendly = greeting_with(key(std::byte{1}));
  std::vector<std::byte> bytes;
  auto rest = std::as_bytes(std::span(data, size)).subspan(3);
  if (data[0] % 4 == 2) {
    bytes = friendly;
    const std::size_t from = bytes.size() * data[2] / 256;
    const std::size_t count = std::min(rest.size(), bytes.size() - from);
    for (std::size_t i = 0; i < count; ++i) bytes[from + i] ^= rest[i];
    rest = {};
    bytes[2] = friendly[2];  // ignored by TLS
    if (bytes == friendly) return 0;
  } else if (data[0] % 2 == 1) {
    const std::size_t kept = stranger.size() * data[2] / 255;
    bytes.assign(stranger.begin(), stranger.begin() + static_cast<std::ptrdiff_t>(kept));
  }
  bytes.insert(bytes.end(), rest.begin(), rest.end());
  take_apart(bytes);

  std::vector<std::byte> out;
  std::size_t read = 0;
  const auto connection = server.accept(std::make_unique<Memory>(bytes, piece, out, read));
  std::byte some[64];
  for (int turn = 0; turn < 10'000; ++turn) {
    const Transfer moved = connection->read(some);
    if (moved.bytes > 0) std::abort();
    if (moved.state != Transfer::State::open) break;
  }
  if (connection->handshake() != TlsConnection::State::failed) std::abort();
  if (connection->error().ok() || !connection->identity().empty()) std::abort();
  if (read > TlsConnection::kMaxGreeting || out.size() > 4096) std::abort();
  return 0;
}
