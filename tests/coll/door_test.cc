// Who is let in at a door, and that nobody who is not can do it harm.
#include "coll/door.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <new>
#include <string>
#include <vector>

#include "lockstep/error.h"
#include "lockstep/log.h"
#include "tests/coll/memory_callers.h"

namespace lockstep::coll {
namespace {

using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""s;
using testing::HasSubstr;

class Doors : public testing::Test {
 protected:
  Doors() {
    set_log_sink([this](LogLevel, std::string_view line) { log_ += std::string(line) + "\n"; });
  }
  ~Doors() override { set_log_sink({}); }

  void call(std::vector<std::byte> bytes) {
    network_.add(std::make_unique<MemoryCaller>(std::move(bytes), 1000));
  }
  /// The next one to be let in before the time is over.
  static std::optional<Visitor> visitor(Door& door) {
    for (Time now{1s}; now < Time{20s}; now += 1ms) {
      if (auto next = door.next(now)) return next;
    }
    return std::nullopt;
  }

  MemoryCallers network_;
  std::string log_;
};

TEST_F(Doors, OneWhoGreetsIsLetIn) {
  call(good_greeting());
  Door door(network_, "here");
  const auto found = visitor(door);
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->hello.rank, 1);
}

/// Memory that is short for one caller is no reason to end what goes on inside.
TEST_F(Doors, AGuardThatFailsKeepsOneCallerOut) {
  call(good_greeting());
  call(good_greeting());
  int guarded = 0;
  Door door(network_, "here", [&](std::unique_ptr<sys::Connection> caller) {
    if (++guarded == 1) throw std::bad_alloc();
    return caller;
  });
  EXPECT_TRUE(visitor(door).has_value());
  EXPECT_EQ(guarded, 2);
  EXPECT_THAT(log_, HasSubstr("cannot let in a caller: out of memory"));
}

/// Any other frame may be longer, and is not waited for.
TEST_F(Doors, OneWhoDoesNotGreetIsTurnedAwayAtTheHeader) {
  std::vector<std::byte> notice = frame(wire::FrameType::notice, std::vector<std::byte>(4096));
  auto caller = std::make_unique<MemoryCaller>(std::move(notice), 1000);
  const MemoryCaller& stream = *caller;
  std::size_t taken = 0;
  network_.add(std::move(caller));
  Door door(network_, "here");
  for (Time now{1s}; door.last_refusal().empty() && now < Time{20s}; now += 1ms) {
    taken = stream.taken();
    EXPECT_FALSE(door.next(now).has_value());
  }
  EXPECT_THAT(door.last_refusal(), HasSubstr("it did not greet first"));
  EXPECT_LE(taken, wire::kHeaderBytes);
}

/// Says nothing, and counts how many of its kind are there.
class Silent final : public sys::Connection {
 public:
  Silent(std::string peer, int& alive) : peer_(std::move(peer)), alive_(alive) { ++alive_; }
  ~Silent() override { --alive_; }
  Silent(const Silent&) = delete;
  Silent& operator=(const Silent&) = delete;
  sys::Transfer read(std::span<std::byte> /*into*/) noexcept override { return {}; }
  sys::Transfer write(std::span<const std::byte> from) noexcept override { return {from.size()}; }
  void shutdown_write() noexcept override {}
  [[nodiscard]] Status error() const override { return {}; }
  [[nodiscard]] std::string peer() const override { return peer_; }

 private:
  std::string peer_;
  int& alive_;
};

TEST_F(Doors, F1OneWhoSaysNothingIsTurnedAwayInTime) {
  int alive = 0;
  network_.add(std::make_unique<Silent>("10.0.0.1:1000", alive));
  Door door(network_, "here");
  Time now{1s};
  for (; now < Time{6s}; now += 1ms) {
    EXPECT_FALSE(door.next(now).has_value());
    ASSERT_EQ(alive, 1) << "five seconds are a caller's";
  }
  // Looked at ever more rarely: it may be some seconds later.
  for (; alive == 1 && now < Time{9s}; now += 1ms) EXPECT_FALSE(door.next(now).has_value());
  EXPECT_EQ(alive, 0);
  EXPECT_THAT(door.last_refusal(), HasSubstr("it has not said who it is"));
}

/// F1: one machine alone cannot take the places of all others.
TEST_F(Doors, CallersOfOneAddressHaveHalfOfThePlaces) {
  int many = 0;
  int few = 0;
  Door door(network_, "here");
  Time now{1s};
  const auto come = [&](const char* host, int count, int& alive) {
    for (int i = 0; i < count; ++i) {
      network_.add(std::make_unique<Silent>(fmt::format("{}:{}", host, 1000 + i), alive));
    }
    for (const Time end = now + 1s; now < end; now += 1ms) EXPECT_FALSE(door.next(now).has_value());
  };
  come("10.0.0.2", 20, few);
  come("10.0.0.1", 40, many);
  EXPECT_EQ(many, 32);
  EXPECT_EQ(few, 20) << "others were not asked to go";
  come("10.0.0.3", 20, few);
  EXPECT_EQ(many + few, 64);
}

}  // namespace
}  // namespace lockstep::coll
