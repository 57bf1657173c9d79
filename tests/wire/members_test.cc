#include "wire/members.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "wire/frame.h"

namespace lockstep::wire {
namespace {

using testing::HasSubstr;
using Payloads = std::vector<std::vector<std::byte>>;

/// Ranks as they join: eight on each machine, each with a port of its own.
std::vector<Hello> roster(int size) {
  std::mt19937_64 random(1);
  std::vector<Hello> rows;
  for (int rank = 0; rank < size; ++rank) {
    Hello hello;
    hello.library = 0x10203;
    hello.rank = rank;
    hello.size = size;
    hello.pid = 4000 + static_cast<std::uint32_t>(random() % 1000);
    hello.started = 1'790'000'000 + static_cast<std::uint32_t>(random() % 10);
    hello.cluster = 0x1122334455667788;
    hello.generation = 7;
    hello.incarnation = random();
    hello.host = static_cast<std::uint64_t>(rank / 8) * 0x9E3779B97F4A7C15;
    hello.set_host_name(fmt::format("node{:03}", rank / 8));
    hello.set_address(fmt::format("10.0.{}.7:{}", rank / 8, 4000 + rank % 8));
    rows.push_back(hello);
  }
  return rows;
}

std::size_t bytes_of(const Payloads& payloads) {
  std::size_t sum = 0;
  for (const auto& payload : payloads) sum += payload.size();
  return sum;
}

TEST(Members, ComeOutAsTheyWentIn) {
  for (const int size : {1, 2, 17, 1024}) {
    const std::vector<Hello> rows = roster(size);
    Members members(size);
    for (const auto& payload : encode_members(rows)) {
      EXPECT_LE(payload.size(), kMaxControlPayload);
      const Status taken = members.take(payload);
      ASSERT_TRUE(taken.ok()) << taken.message();
    }
    EXPECT_EQ(members.rows(), rows);
  }
}

/// Each of 1,024 ranks is sent all of it.
TEST(Members, AreSmall) {
  const std::vector<Hello> rows = roster(1024);
  EXPECT_LT(bytes_of(encode_members(rows)), rows.size() * 40);
}

TEST(Members, ThatHaveNothingInCommonFitToo) {
  std::vector<Hello> rows = roster(3);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    rows[i].set_host_name(std::string(63, static_cast<char>('a' + i)));
    rows[i].set_address(std::string(127, static_cast<char>('A' + i)));
  }
  rows.push_back(rows.back());  // and one without any difference but its rank
  rows.back().rank = 1;
  Members members(4);
  for (const auto& payload : encode_members(rows)) ASSERT_TRUE(members.take(payload).ok());
  EXPECT_EQ(members.rows(), rows);
}

TEST(Members, MoreRowsThanRanksAreRefused) {
  const Payloads payloads = encode_members(roster(3));
  Members members(2);
  const Status taken = members.take(payloads.front());
  EXPECT_EQ(taken.kind(), ErrorKind::data_error);
  EXPECT_THAT(taken.message(), HasSubstr("more rows than there are ranks"));
}

TEST(Members, RowsThatAreCutOffAreRefused) {
  const Payloads payloads = encode_members(roster(1));
  const std::span<const std::byte> whole(payloads.front());
  for (std::size_t size = 1; size < whole.size(); ++size) {
    Members members(1);
    EXPECT_FALSE(members.take(whole.first(size)).ok()) << size;
    EXPECT_TRUE(members.rows().empty());
  }
}

TEST(Members, APieceBeyondTheRowIsRefused) {
  Members members(1);
  // Two pieces: 255 bytes as before and none new, then 25 as before and one new.
  const std::vector<std::byte> long_row{std::byte{2},  std::byte{255}, std::byte{0},
                                        std::byte{25}, std::byte{1},   std::byte{9}};
  EXPECT_THAT(members.take(long_row).message(), HasSubstr("too long"));
}

TEST(Members, AHelloThatIsNoneIsRefused) {
  std::vector<Hello> rows = roster(2);
  rows[1].rank = 5;
  Members members(2);
  EXPECT_THAT(members.take(encode_members(rows).front()).message(), HasSubstr("rank 5 of 2"));
}

}  // namespace
}  // namespace lockstep::wire
