// Whose calls from other machines a rank takes. All callers here know the job's key unless they are
// said not to: what decides is who calls whom, in which generation and for what.
#include "coll/protection.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <string>

#include "base/deadline.h"
#include "tests/transport/tls_wires.h"

namespace lockstep::coll {
namespace {

using transport::JobKey;
using transport::Pair;
using transport::Plane;
using Wires = transport::TcpWires;

constexpr auto kAfter = ProtectedConnection::After::encrypted;
constexpr int kOwn = 2;  // the rank that is called

struct Caller {
  int rank = 1;
  std::uint64_t generation = 4;
  Plane plane = Plane::data;
  int calls = kOwn;  // whom it believes to call
};

/// Moves a byte from one end to the other, or finds that it cannot.
bool passes(sys::Connection& from, sys::Connection& to) {
  const Deadline patience = Deadline::after(std::chrono::seconds(10));
  const std::array<std::byte, 1> sent{std::byte{7}};
  std::array<std::byte, 1> got{};
  bool written = false;
  while (!patience.passed()) {
    if (!written) written = from.write(sent).bytes == 1;
    const sys::Transfer moved = to.read(got);
    if (moved.bytes == 1) return got == sent;
    if (moved.state != sys::Transfer::State::open || !to.error().ok()) return false;
    (void)from.read(got);  // what comes back belongs to the handshake
  }
  ADD_FAILURE() << "neither taken nor refused";
  return false;
}

class Protections : public testing::Test {
 protected:
  /// Whether a rank in that generation, 0 while it joins, takes the call; the caller learns it,
  /// too.
  bool takes(const Caller& caller, std::uint64_t generation) {
    Protection own(key_, kOwn, kAfter);
    own.enter(generation);
    Protection other(key_, caller.rank, kAfter);
    other.enter(caller.generation);
    Wires wires;
    const auto call = other.call(std::move(wires.client), caller.calls, caller.plane);
    const auto answer = own.answer(std::move(wires.server));
    const bool taken = passes(*call, *answer);
    EXPECT_EQ(call->is_open() && call->error().ok(), taken);
    EXPECT_EQ(answer->is_open(), taken);
    const int known = dynamic_cast<const ProtectedConnection&>(*answer).client();
    EXPECT_EQ(known, taken ? caller.rank : -1);
    return taken;
  }

  JobKey key_ = JobKey::random();
};

TEST_F(Protections, ARankOfTheGenerationIsTaken) {
  EXPECT_TRUE(takes({.plane = Plane::data}, 4));
  EXPECT_TRUE(takes({.plane = Plane::control}, 4));
}

/// What this rank has sent to another comes back to it: it has proven nothing. While it joins,
/// nothing else in the name would tell.
TEST_F(Protections, F7AReflectedCallIsRefused) {
  for (const Plane plane : {Plane::control, Plane::data}) {
    for (const std::uint64_t generation : {0U, 4U}) {
      EXPECT_FALSE(
          takes({.rank = kOwn, .generation = generation, .plane = plane, .calls = 0}, generation));
      EXPECT_FALSE(takes({.rank = kOwn, .generation = generation, .plane = plane, .calls = kOwn},
                         generation));
    }
  }
}

TEST_F(Protections, F8ALaterGenerationIsRefused) {
  for (const Plane plane : {Plane::control, Plane::data}) {
    EXPECT_FALSE(takes({.generation = 5, .plane = plane}, 4)) << "one that is not yet";
  }
}

/// A process that was stopped while the others began anew calls as it did before. The key would look
/// wrong to it if its call were refused.
TEST_F(Protections, F8AnEarlierGenerationIsLetInToBeToldSo) {
  for (const Plane plane : {Plane::control, Plane::data}) {
    EXPECT_TRUE(takes({.generation = 3, .plane = plane}, 4));
    EXPECT_FALSE(takes({.generation = 3, .plane = plane, .calls = 0}, 4)) << "another rank's call";
  }
}

/// Who joins may call anybody, to be told where he is wrong; nobody sends data so.
TEST_F(Protections, WhoJoinsIsLetInToBeToldSo) {
  EXPECT_TRUE(takes({.generation = 0, .plane = Plane::control}, 4));
  EXPECT_TRUE(takes({.generation = 0, .plane = Plane::control, .calls = 0}, 4));
  EXPECT_TRUE(takes({.generation = 0, .plane = Plane::control, .calls = 0}, 0));
}

TEST_F(Protections, F8AnotherPlaneIsRefused) {
  EXPECT_FALSE(takes({.generation = 0, .plane = Plane::data}, 4));
  // A neighbour may know the generation earlier than this rank, which takes no data until it does.
  EXPECT_TRUE(takes({.generation = 5, .plane = Plane::control}, 0));
  EXPECT_FALSE(takes({.generation = 5, .plane = Plane::data}, 0));
}

TEST_F(Protections, F8ACallForAnotherRankIsRefused) {
  for (const Plane plane : {Plane::control, Plane::data}) {
    EXPECT_FALSE(takes({.plane = plane, .calls = 0}, 4));
  }
  EXPECT_FALSE(takes({.plane = Plane::control, .calls = 0}, 0));
}

/// A caller by its own words, with the key that belongs to them.
bool takes_name(const JobKey& key, const std::string& identity, const Pair& pair) {
  Protection own(key, kOwn, kAfter);
  own.enter(4);
  Wires wires;
  const transport::TlsClient client;
  const auto call = client.connect(std::move(wires.client), identity, derive(key, pair));
  const auto answer = own.answer(std::move(wires.server));
  return passes(*call, *answer);
}

TEST_F(Protections, AnUnknownNameIsRefused) {
  Pair pair{
      .job = "lockstep", .generation = 4, .client = 1, .server = kOwn, .plane = Plane::control};
  EXPECT_TRUE(takes_name(key_, pair.identity(), pair));
  EXPECT_FALSE(takes_name(key_, "somebody", pair));
  EXPECT_FALSE(takes_name(key_, pair.identity() + " ", pair));
  pair.job = "another";
  EXPECT_FALSE(takes_name(key_, pair.identity(), pair));
}

TEST_F(Protections, AnotherKeyIsRefused) {
  const Protection own(key_, kOwn, kAfter);
  const Protection other(JobKey::random(), 1, kAfter);
  Wires wires;
  const auto call = other.call(std::move(wires.client), kOwn, Plane::control);
  const auto answer = own.answer(std::move(wires.server));
  EXPECT_FALSE(passes(*call, *answer));
  EXPECT_EQ(answer->error().code(), Code::unauthenticated) << answer->error().message();
}

/// All that a caller has sent is sent again, in the same generation: it opens nothing, and no byte
/// of what was said is delivered once more.
TEST_F(Protections, F6ARecordedCallIsOfNoUse) {
  Protection own(key_, kOwn, kAfter);
  Protection other(key_, 1, kAfter);
  transport::Tap::What record;
  record.keep = true;
  Wires first;
  const auto call = other.call(std::make_unique<transport::Tap>(std::move(first.client), record),
                               kOwn, Plane::control);
  const auto answer = own.answer(std::move(first.server));
  ASSERT_TRUE(passes(*call, *answer));

  Wires second;
  const auto again = own.answer(std::move(second.server));
  std::span<const std::byte> left = record.written;
  std::array<std::byte, 1> got{};
  sys::Transfer moved;
  const Deadline patience = Deadline::after(std::chrono::seconds(10));
  while (moved.state == sys::Transfer::State::open && !patience.passed()) {
    left = left.subspan(second.client->write(left).bytes);
    moved = again->read(got);
    ASSERT_EQ(moved.bytes, 0U);
  }
  EXPECT_EQ(moved.state, sys::Transfer::State::broken);
  EXPECT_FALSE(again->is_open());
}

}  // namespace
}  // namespace lockstep::coll
