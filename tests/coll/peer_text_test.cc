// Text of other ranks, wherever it is shown: printable, in one line, and at most 512 bytes long.
#include <gmock/gmock.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "coll/door.h"
#include "lockstep/coll/join.h"
#include "lockstep/log.h"
#include "sys/posix_net.h"
#include "tests/coll/fixtures.h"
#include "tests/sys/temporary_directory.h"

namespace lockstep::coll {
namespace {

using std::chrono_literals::operator""s;
using testing::AllOf;
using testing::Each;
using testing::HasSubstr;
using testing::Not;
using testing::SizeIs;

/// It would clear a terminal, and pass for two lines of the log.
const std::string kBad = "\x1b[2Jenough\n[lockstep 12:00:00.000 error] forged\a";
constexpr const char* kShown = "\\x1b[2Jenough\\x0a[lockstep 12:00:00.000 error] forged\\x07";

std::string text_of(const std::exception_ptr& thrown) {
  const Error* error = as<Error>(thrown);
  return error == nullptr ? "nothing was thrown" : error->what();
}

TEST(PeerText, OfAnAbortAndOfOneThatCannotGoOn) {
  for (const bool aborts : {true, false}) {
    for (const std::string& reason : {kBad, kBad + std::string(10'000, '\x1b')}) {
      const auto thrown = outcomes(3, [&](Session& group) {
        if (group.rank() == 1) aborts ? group.abort(reason) : group.abandon(reason);
        group.barrier();
      });
      for (const auto& each : thrown) {
        const std::string text = text_of(each);
        EXPECT_THAT(text, AllOf(HasSubstr(kShown), Not(HasSubstr("\x1b")), Not(HasSubstr("\a")),
                                Not(HasSubstr("\n[lockstep"))));
        EXPECT_LT(text.find_first_of("\n"), 600U) << text.size();
      }
    }
  }
}

TEST(PeerText, OfAnExceptionThatEndsARank) {
  std::mutex mutex;
  std::vector<std::string> texts;
  const auto rank = [&](Session& group) {
    if (group.rank() == 2) throw std::runtime_error(kBad);
    try {
      group.barrier();
    } catch (const Cancelled& error) {
      const std::lock_guard lock(mutex);
      texts.emplace_back(error.what());
      throw;
    }
  };
  EXPECT_THROW(run_ranks(3, rank), std::runtime_error);
  EXPECT_THAT(texts, AllOf(SizeIs(2), Each(HasSubstr(kShown))));
}

TEST(PeerText, OfAMeetingThatWasGivenUp) {
  Hub hub;
  hub.abort(kBad);
  try {
    (void)hub.join({.size = 2, .rank = 0, .timeout = 1s});
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr(kShown));
  }
}

/// What rank 1 of two throws while it joins, and what it has logged, if that is what rank 0 sends.
struct Joined {
  std::string thrown;
  std::vector<std::string> logged;
};
Joined join_with(const std::function<void(Greeting&)>& rank_0_sends) {
  Joined joined;
  set_log_sink([&](LogLevel, std::string_view line) { joined.logged.emplace_back(line); });
  const TemporaryDirectory directory;
  sys::PosixNetwork network;
  Door door(network, "unix:" + directory.path() + "/0");
  std::atomic<bool> ended = false;
  std::jthread rank_1([&] {
    try {
      (void)join({.addresses = {door.address(), "unix:" + directory.path() + "/1"},
                  .rank = 1,
                  .timeout = 5s});
    } catch (const Error& error) {
      joined.thrown = error.what();
    }
    ended = true;
  });
  std::optional<Visitor> visitor;
  std::unique_ptr<Greeting> greeting;
  const Deadline patience = Deadline::after(10s);
  while (!ended && !patience.passed()) {
    if (!visitor && (visitor = door.next(MonotonicClock().now()))) {
      greeting = std::make_unique<Greeting>(*visitor->connection);
      rank_0_sends(*greeting);
    }
    if (greeting && greeting->flush()) break;
  }
  rank_1.join();
  set_log_sink({});
  return joined;
}

TEST(PeerText, OfARankZeroThatRefuses) {
  const Joined joined = join_with([](Greeting& rank_0) {
    rank_0.send(Status(ErrorKind::config_error, Code::invalid_argument, kBad));
  });
  EXPECT_THAT(joined.thrown, AllOf(HasSubstr("\\x1b[2Jenough\n  [lockstep"),
                                   HasSubstr("forged\\x07"), Not(HasSubstr("\x1b"))));
}

TEST(PeerText, OfANoticeWhileJoining) {
  const Joined joined = join_with([](Greeting& rank_0) {
    rank_0.send(wire::FrameType::notice, std::as_bytes(std::span(kBad)));
    rank_0.send(Status(ErrorKind::config_error, Code::invalid_argument, "go away"));
  });
  EXPECT_THAT(joined.thrown, HasSubstr("go away"));
  EXPECT_THAT(joined.logged, testing::ElementsAre(kShown));
}

}  // namespace
}  // namespace lockstep::coll
