// Writes the seeds of the fuzz targets whose input is ours: whole and broken frames, Hellos and
// greetings, from the encoders themselves. To be run again when the wire format changes:
//
//   write_fuzz_seeds tests        writes tests/*/corpus/{frame,hello,members,door,tls_greeting}
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <vector>

#include "tests/coll/memory_callers.h"
#include "transport/tls.h"
#include "wire/abort.h"
#include "wire/members.h"

namespace lockstep::coll {
namespace {

using Bytes = std::vector<std::byte>;
using wire::FrameType;

class Seeds {
 public:
  Seeds(const std::string& tests, const std::string& layer, const std::string& target)
      : folder_(std::filesystem::path(tests) / layer / "corpus" / target) {
    std::filesystem::create_directories(folder_);
  }
  /// `choice`: the bytes by which the target chooses how to read the rest.
  void add(const std::string& name, std::initializer_list<int> choice, const Bytes& bytes) const {
    std::ofstream file(folder_ / name, std::ios::binary);
    for (const int byte : choice) file.put(static_cast<char>(byte));
    file.write(reinterpret_cast<const char*>(bytes.data()),
               static_cast<std::streamsize>(bytes.size()));
  }

 private:
  std::filesystem::path folder_;
};

template <std::size_t size>
Bytes as_frame(FrameType type, const auto& value) {
  std::array<std::byte, size> payload;
  wire::encode(value, payload);
  return frame(type, payload);
}

Bytes text(const std::string& words) {
  const auto bytes = std::as_bytes(std::span(words));
  return {bytes.begin(), bytes.end()};
}

Bytes joined(std::initializer_list<Bytes> parts) {
  Bytes all;
  for (const Bytes& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

Bytes with(Bytes bytes, std::size_t at, int value) {
  bytes.at(at) = static_cast<std::byte>(value);
  return bytes;
}

Bytes first_of(const Bytes& bytes, std::size_t size) {
  return {bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(size)};
}

wire::Pulse pulse() {
  wire::Pulse pulse;
  pulse.latest.sequence = 7;
  pulse.latest.kind = 1;
  pulse.latest.count = 1000;
  pulse.history = 42;
  return pulse;
}

Bytes abort_frame() {
  const auto payload = wire::encode(
      {.standing = wire::Standing::verdict,
       .origin = 1,
       .cause = {ErrorKind::peer_lost, Code::unavailable, "rank 2 (pid 7 on node2) died", {2}}});
  return frame(FrameType::abort, payload);
}

void write_frames(const std::string& tests) {
  const Seeds seeds(tests, "wire", "frame");
  const Bytes operation = as_frame<sizeof(wire::Descriptor)>(FrameType::operation, pulse().latest);
  const Bytes data = frame(FrameType::data, text("0123456789abcdef"));
  seeds.add("operation-and-data", {15}, joined({operation, data}));
  seeds.add("pulse", {63}, as_frame<wire::kPulseBytes>(FrameType::pulse, pulse()));
  const auto departures = wire::encode(
      {wire::Departure{.rank = 1, .more = 2, .number = 1, .group = wire::kAllGroups, .next = 8}});
  seeds.add("departures", {63}, frame(FrameType::departures, departures.front()));
  seeds.add("abort", {31}, abort_frame());
  seeds.add("hello-then-ready", {7}, joined({good_greeting(), frame(FrameType::ready, {})}));
  seeds.add("notice", {0}, frame(FrameType::notice, text("rank 1 is missing")));
  seeds.add("wrong-check", {63}, with(abort_frame(), 32, 0));
  seeds.add("altered", {63}, with(abort_frame(), wire::kHeaderBytes + 20, 0));
  seeds.add("wrong-length", {191}, with(abort_frame(), 24, 255));
  seeds.add("unknown-type", {63}, with(good_greeting(), 5, 200));
  seeds.add("cut-off", {63}, first_of(good_greeting(), 100));
}

/// What follows the good row that the target begins with.
void write_members(const std::string& tests) {
  const Seeds seeds(tests, "wire", "members");
  std::vector<wire::Hello> rows(4);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    rows[i].rank = static_cast<std::int32_t>(i);
    rows[i].size = 4;
    rows[i].incarnation = i * 0x9E3779B97F4A7C15;
    rows[i].set_host_name("node");
    rows[i].set_address(fmt::format("10.0.0.{}:4000", i));
  }
  const Bytes all = wire::encode_members(rows).front();
  seeds.add("four-rows", {}, all);
  seeds.add("cut-off", {}, first_of(all, all.size() - 3));
  seeds.add("as-before", {}, Bytes(3));
  seeds.add("beyond-the-row", {1, 255, 40}, Bytes(40));
}

void write_hellos(const std::string& tests) {
  const Seeds seeds(tests, "wire", "hello");
  const Bytes greeting = good_greeting();
  const Bytes hello(greeting.begin() + wire::kHeaderBytes, greeting.end());
  seeds.add("whole", {0, 0}, hello);
  seeds.add("another-protocol", {0, 0}, with(hello, 0, 2));
  seeds.add("another-purpose", {0, 4}, text(std::string("\x09\0\0\0", 4)));
  seeds.add("rank-beyond-size", {0, 12}, text(std::string("\x05\0\0\0\x05\0\0\0", 8)));
  seeds.add("negative-rank", {0, 12}, text(std::string("\xff\xff\xff\xff", 4)));
  seeds.add("control-characters", {0, 152}, text("\x1b[31m"));
}

void write_doors(const std::string& tests) {
  const Seeds seeds(tests, "coll", "door");
  const Bytes greeting = good_greeting();
  seeds.add("good", {255, 0}, greeting);
  seeds.add("good-byte-by-byte", {0, 0}, greeting);
  seeds.add("good-and-more", {63, 0}, joined({greeting, text("what follows")}));
  seeds.add("header-then-garbage", {63, 2}, text("GET / HTTP/1.1\r\n\r\n"));
  seeds.add("http", {63, 0}, text("GET / HTTP/1.1\r\nHost: node1\r\n\r\n"));
  seeds.add("abort-first", {63, 0}, abort_frame());
  seeds.add("tls", {63, 0}, text("\x16\x03\x01\x02\x01"));
  seeds.add("half", {63, 127}, text("x"));
}

/// What is written is kept, and nothing ever comes.
class Recorder final : public sys::Connection {
 public:
  explicit Recorder(Bytes& out) : out_(out) {}
  sys::Transfer read(std::span<std::byte> /*into*/) noexcept override { return {}; }
  sys::Transfer write(std::span<const std::byte> from) noexcept override {
    out_.insert(out_.end(), from.begin(), from.end());
    return {from.size(), sys::Transfer::State::open};
  }
  void shutdown_write() noexcept override {}
  [[nodiscard]] Status error() const override { return {}; }
  [[nodiscard]] std::string peer() const override { return "recorder"; }

 private:
  Bytes& out_;
};

void write_tls_greetings(const std::string& tests) {
  const Seeds seeds(tests, "transport", "tls_greeting");
  Bytes greeting;
  std::array<std::byte, transport::PairKey::kBytes> key;
  key.fill(std::byte{3});
  const auto client = transport::TlsClient().connect(
      std::make_unique<Recorder>(greeting), "lockstep1|0|client=1|server=0|control|lockstep",
      transport::PairKey(key));
  (void)client->handshake();
  seeds.add("whole", {0, 255, 0}, greeting);
  seeds.add("byte-by-byte", {0, 0, 0}, greeting);
  seeds.add("twice", {0, 255, 0}, joined({greeting, greeting}));
  seeds.add("half", {0, 255, 0}, first_of(greeting, greeting.size() / 2));
  seeds.add("long-record", {0, 255, 0}, with(with(greeting, 3, 255), 4, 255));
  seeds.add("another-binder", {0, 255, 0}, with(greeting, greeting.size() - 1, 0));
  seeds.add("another-identity", {0, 255, 0}, [&] {
    Bytes other = greeting;
    const Bytes word = text("client=1");
    const auto at = std::search(other.begin(), other.end(), word.begin(), word.end());
    if (at != other.end()) at[7] = std::byte{'9'};
    return other;
  }());
  seeds.add("changed", {2, 255, 200}, text("1"));
  seeds.add("plain-text", {0, 255, 0}, good_greeting());
  seeds.add("alert", {0, 255, 0}, text(std::string("\x15\x03\x03\0\x02\x02\x28", 7)));
}

}  // namespace
}  // namespace lockstep::coll

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  using namespace lockstep::coll;
  write_frames(argv[1]);
  write_hellos(argv[1]);
  write_members(argv[1]);
  write_doors(argv[1]);
  write_tls_greetings(argv[1]);
  return 0;
}
