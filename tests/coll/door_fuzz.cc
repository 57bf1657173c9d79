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
#include <vector>

#include "coll/door.h"
#include "lockstep/log.h"
#include "memory_callers.h"
#include "wire/frame.h"
#include "wire/hello.h"

namespace {

using lockstep::Time;
using lockstep::coll::Door;
using lockstep::coll::MemoryCaller;
using lockstep::coll::MemoryCallers;
namespace wire = lockstep::wire;

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const std::vector<std::byte> greeting = [] {
    lockstep::set_log_sink([](lockstep::LogLevel, std::string_view) {});
    return lockstep::coll::good_greeting();
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

  auto caller = std::make_unique<MemoryCaller>(bytes, piece);
  const MemoryCaller& stream = *caller;
  MemoryCallers network;
  network.add(std::move(caller));
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
