// OpenSSL without memory: whose fault it is when an allocation fails. The n-th of one side fails,
// for every n up to the last.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <openssl/crypto.h>

#include <cstdlib>

#include "lockstep/error.h"
#include "tests/transport/tls_wires.h"
#include "transport/tls.h"

namespace {

bool armed = false;   // allocations count
long left = 0;        // that still succeed
bool failed = false;  // one did not

void* allocated(void* memory, std::size_t size) {
  if (armed && left-- == 0) {
    failed = true;
    return nullptr;
  }
  return std::realloc(memory, size);
}

/// Before main(): OpenSSL takes other functions only until it has used its own.
const bool kCountsOpenSsl =
    CRYPTO_set_mem_functions(
        [](std::size_t size, const char*, int) { return allocated(nullptr, size); },
        [](void* memory, std::size_t size, const char*, int) { return allocated(memory, size); },
        [](void* memory, const char*, int) { std::free(memory); }) == 1;

}  // namespace

namespace lockstep::transport {
namespace {

using testing::HasSubstr;
using State = TlsConnection::State;
using Moved = sys::Transfer::State;

constexpr const char* kWho = "lockstep1|1|client=1|server=0|data|job";

PairKey the_key() {
  const Bytes bytes = pattern(PairKey::kBytes, 1);
  return PairKey(std::span<const std::byte, PairKey::kBytes>(bytes));
}

enum class Side : std::uint8_t { client, server };

class TlsMemory : public testing::TestWithParam<Side> {
 protected:
  static constexpr TlsOptions kOptions{.records_per_key = 2};

  /// One step of a side, whose allocations count if it is the one under test.
  template <class Step>
  auto in(Side side, Step step) {
    armed = side == GetParam();
    auto result = step();
    armed = false;
    return result;
  }

  /// A handshake and some records each way, as far as it goes; false if an allocation failed.
  bool talk(long succeed) {
    PairWires wires;
    left = succeed;
    failed = false;
    try {
      client_ = in(Side::client,
                   [&] { return clients_.connect(std::move(wires.client), kWho, the_key()); });
      server_ = in(Side::server, [&] { return servers_.accept(std::move(wires.server)); });
    } catch (const std::bad_alloc&) {
      armed = false;
      client_.reset();
      return false;
    } catch (const SystemError& error) {
      armed = false;
      EXPECT_EQ(error.code(), Code::resource_exhausted);
      client_.reset();
      return false;
    }
    const Bytes words = pattern(100'000, 2);
    Bytes heard(words.size());
    std::size_t said[2] = {};
    std::size_t got[2] = {};
    bool over[2] = {};
    const auto step = [&](Side side) {
      const int at = static_cast<int>(side);
      TlsConnection& mine = side == Side::client ? *client_ : *server_;
      const auto wrote = in(side, [&] { return mine.write(std::span(words).subspan(said[at])); });
      said[at] += wrote.bytes;
      const auto read = in(side, [&] { return mine.read(std::span(heard).subspan(got[at])); });
      got[at] += read.bytes;
      over[at] = wrote.state != Moved::open || read.state != Moved::open ||
                 mine.handshake() == State::failed ||
                 (got[at] == words.size() && said[at] == words.size());
    };
    for (int turn = 0; turn < 10'000 && !(over[0] && over[1]); ++turn) {
      // One that has failed hangs up, as a rank that ends does.
      if (!over[0] || client_->error().ok()) step(Side::client);
      if (!over[1] || server_->error().ok()) step(Side::server);
      if (over[0] || over[1]) break;
    }
    return !failed;
  }

  TlsClient clients_{kOptions};
  TlsServer servers_{[](std::string_view) { return std::optional(the_key()); }, kOptions};
  std::unique_ptr<TlsConnection> client_;
  std::unique_ptr<TlsConnection> server_;
};

TEST_P(TlsMemory, OneThatHasNoneLeftSaysSoAndBlamesNobody) {
  ASSERT_TRUE(kCountsOpenSsl);
  ASSERT_TRUE(talk(1'000'000)) << "what is made once for all";
  int reported = 0;
  long succeed = 0;
  for (; !talk(succeed); ++succeed) {
    ASSERT_LT(succeed, 20'000);
    if (!client_) continue;
    const bool is_client = GetParam() == Side::client;
    const Status own = (is_client ? client_ : server_)->error();
    if (own.ok()) continue;  // OpenSSL did without
    ++reported;
    EXPECT_EQ(own.kind(), ErrorKind::system_error) << succeed << " OWN: " << own.message();
    EXPECT_EQ(own.code(), Code::resource_exhausted) << succeed;
    EXPECT_THAT(own.message(), HasSubstr("out of memory"));
    // The peer learns that it was not its fault, nor that of what lies between.
    TlsConnection& peer = is_client ? *server_ : *client_;
    (is_client ? client_ : server_).reset();
    std::byte some[100];
    for (int turn = 0; turn < 1000 && peer.error().ok(); ++turn) (void)peer.read(some);
    EXPECT_NE(peer.error().kind(), ErrorKind::data_error)
        << succeed << " PEER: " << peer.error().message();
    EXPECT_NE(peer.error().kind(), ErrorKind::config_error)
        << succeed << " PEER: " << peer.error().message();
  }
  EXPECT_GT(reported, 20);
  RecordProperty("allocations", static_cast<int>(succeed));
}

INSTANTIATE_TEST_SUITE_P(Of, TlsMemory, testing::Values(Side::client, Side::server),
                         [](const auto& each) {
                           return each.param == Side::client ? "AClient" : "AServer";
                         });

}  // namespace
}  // namespace lockstep::transport
