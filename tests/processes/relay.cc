#include "tests/processes/relay.h"

#include <algorithm>
#include <chrono>
#include <string_view>
#include <utility>

#include "tests/processes/scenarios.h"
#include "wire/frame.h"

namespace lockstep::processes {
namespace {

using sys::Transfer;

constexpr auto kLook = std::chrono::milliseconds(1);
constexpr std::size_t kAtOnce = std::size_t{64} << 10;
constexpr std::size_t kLarge = 4096;  // bytes that cannot belong to a small operation

/// The first byte of the payload of a frame of that type, if one so long begins in these bytes.
std::byte* payload_in(std::span<std::byte> bytes, wire::FrameType type, std::size_t length) {
  for (; bytes.size() > wire::kHeaderBytes; bytes = bytes.subspan(1)) {
    wire::Header header;
    if (wire::decode(bytes.first<wire::kHeaderBytes>(), header).ok() && header.type == type &&
        header.length >= length) {
      return &bytes[wire::kHeaderBytes];
    }
  }
  return nullptr;
}

bool says_data(std::span<const std::byte> greeting) {
  const std::string_view text(reinterpret_cast<const char*>(greeting.data()), greeting.size());
  return text.find("|data|") != std::string_view::npos;
}

}  // namespace

Relay::Relay(std::string rank)
    : listener_(network_.listen("127.0.0.1:0")),
      rank_(std::move(rank)),
      thread_([this](const std::stop_token& stop) { run(stop); }) {}

Relay::~Relay() {
  thread_.request_stop();
  thread_.join();
}

void Relay::run(const std::stop_token& stop) {
  const auto poller = network_.poller();
  poller->watch(*listener_);
  while (!stop.stop_requested()) {
    bool moved = false;
    if (auto caller = listener_->accept()) {
      auto rank = network_.connect(rank_);
      sys::Connection& one = *caller;
      sys::Connection& other = *rank;
      calls_.push_back({.caller = std::move(caller),
                        .rank = std::move(rank),
                        .there = {.from = one, .to = other},
                        .back = {.from = other, .to = one}});
      moved = true;
    }
    for (Call& call : calls_) {
      moved |= pass_on(call, call.there);
      moved |= pass_on(call, call.back);
    }
    // A reset on one side is one on the other; the callers call again.
    std::erase_if(calls_, [](const Call& call) { return call.broken; });
    if (!moved) (void)poller->wait(Deadline::after(kLook));
  }
  poller->forget(*listener_);
}

bool Relay::pass_on(Call& call, Direction& direction) {
  bool moved = false;
  if (call.broken) return false;
  if (direction.written == direction.bytes.size() && !direction.over) {
    direction.bytes.resize(kAtOnce);
    direction.written = 0;
    const Transfer got = direction.from.read(direction.bytes);
    direction.bytes.resize(got.bytes);
    look_at(call, direction.bytes);
    moved = got.bytes > 0;
    if (call.broken) return true;
    call.broken |= got.state == Transfer::State::broken;
    direction.over = got.state != Transfer::State::open;
    if (direction.over && direction.bytes.empty()) direction.to.shutdown_write();
  }
  if (direction.written < direction.bytes.size()) {
    const Transfer put = direction.to.write(std::span(direction.bytes).subspan(direction.written));
    direction.written += put.bytes;
    moved |= put.bytes > 0;
    call.broken |= put.state == Transfer::State::broken;
    if (direction.over && direction.written == direction.bytes.size()) {
      direction.to.shutdown_write();
    }
  }
  return moved;
}

void Relay::look_at(Call& call, std::span<std::byte> bytes) {
  if (bytes.empty()) return;
  if (!std::exchange(call.began, true)) call.is_data = says_data(bytes);
  std::byte* target = nullptr;
  switch (what_.load()) {
    case What::nothing:
      return;
    case What::data_frame:
      target = payload_in(bytes, wire::FrameType::data, kLarge);
      break;
    case What::control_frame:
      target = payload_in(bytes, wire::FrameType::pulse, 1);
      break;
    case What::tls_data:
      target = call.is_data && bytes.size() >= kLarge ? &bytes[bytes.size() / 2] : nullptr;
      break;
    case What::cut:
      call.broken = call.is_data && bytes.size() >= kLarge;
      if (!call.broken) return;
      target = bytes.data();  // which nobody gets
      break;
  }
  if (target == nullptr) return;
  *target ^= std::byte{0x10};
  what_.store(What::nothing);
  flipped_us_.store(now_us());
}

}  // namespace lockstep::processes
