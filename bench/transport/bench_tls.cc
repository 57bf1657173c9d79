// A stream over loopback TCP, one thread a side: TlsConnection with pollers against OpenSSL called
// directly on blocking sockets.
#include <fcntl.h>
#include <fmt/format.h>

#include <chrono>
#include <functional>
#include <memory>
#include <stdexcept>
#include <thread>
#include <vector>

#include "bench/support/paired.h"
#include "bench/transport/bare_tls.h"
#include "sys/posix_net.h"
#include "sys/posix_socket.h"
#include "transport/tls.h"

namespace lockstep::bench {
namespace {

using transport::PairKey;
using transport::TlsClient;
using transport::TlsConnection;
using transport::TlsServer;
using Bytes = std::vector<std::byte>;
using Interest = sys::Poller::Interest;

constexpr std::size_t kMiB = std::size_t{1} << 20;
constexpr std::size_t kTotal = 128 * kMiB;

Deadline patience() { return Deadline::after(std::chrono::minutes(1)); }

struct Ends {
  std::unique_ptr<sys::Connection> client;
  std::unique_ptr<sys::Connection> server;
};

Ends connect() {
  sys::PosixNetwork network;
  const auto listener = network.listen("127.0.0.1:0");
  const auto poller = network.poller();
  Ends ends;
  ends.client = network.connect(listener->address());
  poller->watch(*listener);
  while (!(ends.server = listener->accept())) (void)poller->wait(patience());
  return ends;
}

/// A blocking socket of its own for OpenSSL.
int blocking_socket(sys::Connection& connection) {
  const int fd = ::dup(dynamic_cast<sys::PosixConnection&>(connection).fd());
  ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) & ~O_NONBLOCK);
  return fd;
}

/// One end of ours, with the poller it waits in.
class Ours {
 public:
  explicit Ours(std::unique_ptr<TlsConnection> connection)
      : connection_(std::move(connection)), poller_(sys::PosixNetwork().poller()) {}
  ~Ours() { poller_->forget(*connection_); }
  Ours(const Ours&) = delete;
  Ours& operator=(const Ours&) = delete;

  void write_all(std::span<const std::byte> bytes, std::size_t piece) {
    move(Interest::write, bytes.size(), [&](std::size_t at) {
      return connection_->write(bytes.subspan(at, std::min(piece, bytes.size() - at)));
    });
  }
  void read_all(std::span<std::byte> bytes, std::size_t piece) {
    move(Interest::read, bytes.size(), [&](std::size_t at) {
      return connection_->read(bytes.subspan(at, std::min(piece, bytes.size() - at)));
    });
  }
  void shake() {
    while (connection_->handshake() == TlsConnection::State::pending) {
      poller_->watch(*connection_, connection_->wants_write() ? Interest::write : Interest::read);
      (void)poller_->wait(patience());
    }
  }

 private:
  void move(Interest interest, std::size_t size,
            const std::function<sys::Transfer(std::size_t)>& step) {
    poller_->watch(*connection_, interest);
    for (std::size_t at = 0; at < size;) {
      const sys::Transfer moved = step(at);
      if (moved.state != sys::Transfer::State::open) {
        throw std::runtime_error(connection_->error().message());
      }
      at += moved.bytes;
      if (moved.bytes == 0) (void)poller_->wait(patience());
    }
  }

  std::unique_ptr<TlsConnection> connection_;
  std::unique_ptr<sys::Poller> poller_;
};

/// Moves the bytes from one end to the other, and one byte back.
template <class End>
void stream(End& from, End& to, const Bytes& out, Bytes& in, std::size_t piece) {
  std::byte done[1] = {};
  std::byte answer[1];
  // Threads of their own: a thread hands its pin down to those it starts.
  const std::jthread receiver([&] {
    pin_one_of(2, 1);
    to.read_all(in, piece);
    to.write_all(done, 1);
  });
  const std::jthread sender([&] {
    pin_one_of(2, 0);
    from.write_all(out, piece);
    from.read_all(answer, 1);
  });
}

template <class End>
void shake(End& one, End& other) {
  const std::jthread helper([&] { other.shake(); });
  one.shake();
}

int run() {
  const Bytes key_bytes(PairKey::kBytes, std::byte{7});
  const std::span<const std::byte, PairKey::kBytes> key(key_bytes);
  const TlsClient client_side;
  const TlsServer server_side([&](std::string_view) { return PairKey(key); });

  Ends ends = connect();
  Ours client(client_side.connect(std::move(ends.client), "bench", PairKey(key)));
  Ours server(server_side.accept(std::move(ends.server)));
  shake(client, server);

  const Ends bare_ends = connect();
  BareTls bare_one(BareTls::Side::client, blocking_socket(*bare_ends.client), key);
  BareTls bare_other(BareTls::Side::server, blocking_socket(*bare_ends.server), key);
  shake(bare_one, bare_other);

  const Bytes out(kTotal, std::byte{42});
  Bytes in(kTotal);
  Targets targets;
  for (const std::size_t piece : {kMiB / 64, kMiB / 16, kMiB}) {
    const PairedResult result = paired_ratio(
        {}, [&] { stream(client, server, out, in, piece); },
        [&] { stream(bare_one, bare_other, out, in, piece); });
    fmt::print("pieces of {} KiB: ours {:.2f} GB/s, bare {:.2f} GB/s\n", piece >> 10,
               static_cast<double>(kTotal) / result.ours_seconds / 1e9,
               static_cast<double>(kTotal) / result.other_seconds / 1e9);
    targets.add(fmt::format("tls_stream_{}KiB", piece >> 10), result, 0.80);
  }
  return targets.finish();
}

}  // namespace
}  // namespace lockstep::bench

int main() { return lockstep::bench::run(); }
