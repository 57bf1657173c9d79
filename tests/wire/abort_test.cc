#include "wire/abort.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "wire/frame.h"

namespace lockstep::wire {
namespace {

using testing::HasSubstr;

Abort sample() {
  return {.standing = Standing::verdict,
          .origin = 3,
          .cause = Status(ErrorKind::peer_lost, Code::unavailable, "rank 2 died", {2})};
}

TEST(Abort, ComesBackAsItWas) {
  Abort back;
  ASSERT_TRUE(decode(encode(sample()), 4, back).ok());
  EXPECT_EQ(back.standing, Standing::verdict);
  EXPECT_EQ(back.origin, 3);
  EXPECT_EQ(back.cause, sample().cause);
}

TEST(Abort, TheTextIsMadePrintable) {
  Abort sent = sample();
  sent.cause =
      Status(ErrorKind::mismatch, Code::invalid_argument,
             "they differ:\n  rank 1: \x1b[2J\n[lockstep 12:00:00.000 error] forged\a", {2});
  Abort back;
  ASSERT_TRUE(decode(encode(sent), 4, back).ok());
  EXPECT_EQ(back.cause.message(),
            "they differ:\n  rank 1: \\x1b[2J\n  [lockstep 12:00:00.000 error] forged\\x07");
}

TEST(Abort, IsCutToOneFrame) {
  std::vector<int> culprits(1000);
  for (int i = 0; i < 1000; ++i) culprits[static_cast<std::size_t>(i)] = i;
  const Abort large{.standing = Standing::proposal,
                    .origin = 0,
                    .cause = Status(ErrorKind::mismatch, Code::invalid_argument,
                                    std::string(10'000, 'm'), culprits)};
  const auto payload = encode(large);
  EXPECT_EQ(payload.size(), kMaxControlPayload);
  Abort back;
  ASSERT_TRUE(decode(payload, 1000, back).ok());
  EXPECT_EQ(back.cause.culprits().size(), 256U);
  EXPECT_GT(back.cause.message().size(), 2000U);
}

TEST(Abort, ErrorsNameTheField) {
  const auto good = encode(sample());
  const auto error = [&](std::size_t at, int value, int size = 4) {
    auto payload = good;
    payload[at] = static_cast<std::byte>(value);
    Abort back;
    return decode(payload, size, back).message();
  };
  EXPECT_THAT(error(0, 2), HasSubstr("standing"));
  EXPECT_THAT(error(1, 11), HasSubstr("kind"));
  EXPECT_THAT(error(2, 0), HasSubstr("code"));
  EXPECT_THAT(error(2, 17), HasSubstr("code"));
  EXPECT_THAT(error(4, 4), HasSubstr("origin 4"));
  EXPECT_THAT(error(7, 255), HasSubstr("origin"));
  EXPECT_THAT(error(8, 200), HasSubstr("culprits"));
  EXPECT_THAT(error(10, 200), HasSubstr("text"));
  EXPECT_THAT(error(12, 9), HasSubstr("culprit 9"));
}

TEST(Abort, EveryTruncationIsRejected) {
  const auto good = encode(sample());
  for (std::size_t size = 0; size < good.size(); ++size) {
    Abort back;
    EXPECT_FALSE(decode(std::span(good).first(size), 4, back).ok()) << size;
  }
}

}  // namespace
}  // namespace lockstep::wire
