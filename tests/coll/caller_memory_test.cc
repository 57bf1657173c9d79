// F1: what a caller costs who has not shown that he knows the key. Every byte is counted that this
// process allocates for him, by itself or through OpenSSL.
#include <gtest/gtest.h>
#include <malloc.h>
#include <openssl/crypto.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <new>
#include <string>
#include <vector>

#include "coll/door.h"
#include "coll/protection.h"
#include "lockstep/log.h"
#include "sys/posix_net.h"
#include "tests/coll/memory_callers.h"

namespace {

std::atomic<std::size_t> live = 0;
std::atomic<std::size_t> peak = 0;

void* counted(void* memory) noexcept {
  if (memory != nullptr) {
    live += ::malloc_usable_size(memory);
    peak = std::max(peak.load(), live.load());
  }
  return memory;
}
void* discounted(void* memory) noexcept {
  if (memory != nullptr) live -= ::malloc_usable_size(memory);
  return memory;
}

/// Before main(): OpenSSL takes other functions only until it has used its own.
const bool kCountsOpenSsl =
    CRYPTO_set_mem_functions(
        [](std::size_t size, const char*, int) { return counted(std::malloc(size)); },
        [](void* memory, std::size_t size, const char*, int) {
          return counted(std::realloc(discounted(memory), size));
        },
        [](void* memory, const char*, int) { std::free(discounted(memory)); }) == 1;

}  // namespace

// Not inlined: g++ takes what it can see in them for a mismatch.
[[gnu::noinline]] void* operator new(std::size_t size) {
  void* memory = counted(std::malloc(size));
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(discounted(memory)); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t /*size*/) noexcept {
  std::free(discounted(memory));
}

namespace lockstep::coll {
namespace {

using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""s;
using transport::Pair;
using transport::Plane;
using Bytes = std::vector<std::byte>;

constexpr std::size_t kMostForAStranger = 4096;

const Pair kCall{.job = "lockstep", .generation = 0, .client = 1, .server = 0};

transport::JobKey job_key(int last) {
  const std::string text = std::string(62, '7') + std::to_string(last);
  return transport::JobKey::from_text(text, "the test's key");
}

/// What is written is kept, and nothing ever comes.
class Recorder final : public sys::Connection {
 public:
  explicit Recorder(Bytes& out) : out_(out) {}
  sys::Transfer read(std::span<std::byte> /*into*/) noexcept override { return {}; }
  sys::Transfer write(std::span<const std::byte> from) noexcept override {
    out_.insert(out_.end(), from.begin(), from.end());
    return {from.size()};
  }
  void shutdown_write() noexcept override {}
  [[nodiscard]] Status error() const override { return {}; }
  [[nodiscard]] std::string peer() const override { return "recorder"; }

 private:
  Bytes& out_;
};

Bytes greeting_of(const std::string& who, const transport::PairKey& key) {
  Bytes bytes;
  (void)transport::TlsClient().connect(std::make_unique<Recorder>(bytes), who, key)->handshake();
  return bytes;
}

struct Cost {
  std::size_t most = 0;     // at any moment
  std::size_t waiting = 0;  // while the door waits for more of him
};

class CallerMemory : public testing::Test {
 protected:
  CallerMemory() : protection_(job_key(11), 0, ProtectedConnection::After::encrypted) {
    set_log_sink([](LogLevel, std::string_view) {});
    // What is made once for all: OpenSSL's tables, the words of the last refusal.
    for (int i = 0; i < 3; ++i) (void)cost_of(greeting_of(std::string(256, 'w'), any_key()));
    EXPECT_TRUE(kCountsOpenSsl);
  }
  ~CallerMemory() override { set_log_sink({}); }

  static transport::PairKey any_key() { return derive(job_key(22), kCall); }
  static transport::PairKey right_key() { return derive(job_key(11), kCall); }

  Cost cost_of(const Bytes& words) {
    sys::PosixNetwork network;
    const auto caller = network.connect(door_.address());
    std::size_t said = 0;
    const std::size_t before = live;
    peak = before;
    Cost cost;
    // So many looks that he has long been heard, or else has been shown out: 5 s of the door's.
    for (const Time end = now_ + 4s; now_ < end; now_ += 1ms) {
      if (said < words.size()) said += caller->write(std::span(words).subspan(said)).bytes;
      EXPECT_FALSE(door_.next(now_).has_value());
      // A shorter refusal in words may have followed a longer one.
      cost.waiting = std::max(cost.waiting, live - std::min(before, live.load()));
    }
    EXPECT_EQ(said, words.size());
    cost.most = peak - before;
    for (const Time end = now_ + 4s; now_ < end; now_ += 1ms) (void)door_.next(now_);
    EXPECT_LE(live, before + 512) << "he is gone; a refusal in words may be left";
    return cost;
  }

  /// He costs no more than that, and something at all.
  void expect_cheap(const Bytes& words, const std::string& refusal) {
    const Cost cost = cost_of(words);
    EXPECT_GT(cost.most, sizeof(transport::TlsConnection));
    EXPECT_LE(cost.waiting, kMostForAStranger);
    EXPECT_LE(cost.most, kMostForAStranger);
    EXPECT_NE(door_.last_refusal().find(refusal), std::string::npos) << door_.last_refusal();
    RecordProperty("most", static_cast<int>(cost.most));
  }

  Protection protection_;
  sys::PosixNetwork network_;
  Door door_{network_, "127.0.0.1:0", [this](std::unique_ptr<sys::Connection> inner) {
               return protection_.answer(std::move(inner));
             }};
  Time now_{1s};
};

TEST_F(CallerMemory, OneWhoSaysNothing) { expect_cheap({}, "has not said who it is"); }

TEST_F(CallerMemory, HalfAGreeting) {
  Bytes words = greeting_of(kCall.identity(), right_key());
  words.resize(words.size() / 2);
  expect_cheap(words, "has not said who it is");
}

TEST_F(CallerMemory, TheLongestGreetingButOneByte) {
  Bytes words(transport::TlsConnection::kMaxGreeting - 1);
  const int header[] = {22, 3, 1, 7, 0xfb, 1, 0, 7, 0xf7};
  std::transform(std::begin(header), std::end(header), words.begin(),
                 [](int b) { return static_cast<std::byte>(b); });
  expect_cheap(words, "has not said who it is");
}

/// With another extension in front of all, so that it is as long as a greeting may be.
Bytes longest(Bytes greeting) {
  const std::size_t more = transport::TlsConnection::kMaxGreeting - greeting.size();
  const auto number = [&](std::size_t at) {
    return std::to_integer<std::size_t>(greeting[at]) << 8 |
           std::to_integer<std::size_t>(greeting[at + 1]);
  };
  const auto set = [](Bytes& in, std::size_t at, std::size_t value) {
    in[at] = static_cast<std::byte>(value >> 8);
    in[at + 1] = static_cast<std::byte>(value);
  };
  const std::size_t ciphers = 5 + 4 + 2 + 32 + 1;  // behind a session without a name
  const std::size_t extensions = ciphers + 2 + number(ciphers) + 2;
  for (const std::size_t at : {std::size_t{3}, std::size_t{7}, extensions}) {
    set(greeting, at, number(at) + more);
  }
  Bytes padding(more);
  set(padding, 0, 21);
  set(padding, 2, more - 4);
  greeting.insert(greeting.begin() + static_cast<std::ptrdiff_t>(extensions) + 2, padding.begin(),
                  padding.end());
  return greeting;
}

/// The key of this name is derived, though it is not the caller's.
TEST_F(CallerMemory, TheLongestGreetingWithAWrongKey) {
  Pair call = kCall;
  call.client = call.server = 2'147'483'647;
  const Bytes words = longest(greeting_of(call.identity(), any_key()));
  ASSERT_EQ(words.size(), transport::TlsConnection::kMaxGreeting);
  ASSERT_TRUE(transport::ClientGreeting::parse(words).has_value());
  expect_cheap(words, "wrong key");
}

/// Whoever holds a connection that has failed holds no more than one that says nothing.
TEST_F(CallerMemory, NothingIsKeptOfARefusedGreeting) {
  const Bytes good = greeting_of(kCall.identity(), right_key());
  (void)cost_of(good);  // used up
  for (const Bytes& words : {good, greeting_of(kCall.identity(), any_key()),
                             greeting_of(std::string(256, 'x'), any_key()), Bytes(100)}) {
    const std::size_t before = live;
    const auto called = protection_.answer(std::make_unique<MemoryCaller>(words, 50));
    const std::size_t silent = live - before;
    std::byte some[1];
    while (called->read(some).state == sys::Transfer::State::open) continue;
    EXPECT_FALSE(called->error().ok());
    EXPECT_LE(live - before, silent + 300) << "his name";
  }
}

TEST_F(CallerMemory, AWrongKey) {
  expect_cheap(greeting_of(kCall.identity(), any_key()), "wrong key");
}

TEST_F(CallerMemory, AnUnknownName) {
  expect_cheap(greeting_of(std::string(256, 'x'), right_key()), "wrong key");
}

TEST_F(CallerMemory, NoGreetingAtAll) { expect_cheap(Bytes(100), "did not identify itself"); }

TEST_F(CallerMemory, ARecording) {
  const Bytes words = greeting_of(kCall.identity(), right_key());
  EXPECT_GT(cost_of(words).waiting, 8 * kMostForAStranger)
      << "who knows the key speaks to OpenSSL: else nothing is counted here";
  expect_cheap(words, "used before");
}

}  // namespace
}  // namespace lockstep::coll
