#include "lockstep/communication_options.h"

#include <limits>

#include "../fixtures.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

TEST(CommunicationOptionsTest, Case77WrongValuesAreRefusedWhereTheyAreWritten) {
  const CommunicationOptions hints = CollectiveHints{.bytes_per_pack = 50, .timeout_seconds = 1};
  EXPECT_EQ(hints.bytes_per_pack, 50);
  EXPECT_EQ(hints.timeout_seconds.value(), 1.0);
  EXPECT_THAT(wrong_value([] { CommunicationOptions{.bytes_per_pack = -1}; }),
              HasSubstr("bytes_per_pack"));
  EXPECT_THAT(wrong_value([] { CollectiveHints{.bytes_per_pack = -7}; }), HasSubstr("-7"));
  EXPECT_THAT(wrong_value([] { CommunicationOptions{.timeout_seconds = -0.5}; }),
              HasSubstr("timeout_seconds"));
  EXPECT_THAT(wrong_value([] {
                CommunicationOptions{.timeout_seconds = std::numeric_limits<double>::quiet_NaN()};
              }),
              HasSubstr("timeout_seconds"));
  for (const char* word : {"auto", "AUTO", "Ring", "nccl", "MPI"}) {
    EXPECT_NO_THROW(CommunicationOptions{.implementation = word}) << word;
  }
  EXPECT_EQ(CommunicationOptions{.implementation = "RING"}.implementation, Communication::ring);
  EXPECT_THAT(wrong_value([] { CommunicationOptions{.implementation = "gloo"}; }),
              AllOf(HasSubstr("gloo"), HasSubstr("auto, ring, nccl, mpi")));
}

TEST(CommunicationOptionsTest, WhatACallSaysWins) {
  const CommunicationOptions own{
      .bytes_per_pack = 10, .timeout_seconds = 5, .implementation = Communication::ring};
  const CommunicationOptions same = own.merged({});
  EXPECT_EQ(same.bytes_per_pack, 10);
  EXPECT_EQ(same.timeout_seconds.value(), 5.0);
  EXPECT_EQ(same.implementation, Communication::ring);
  const CommunicationOptions other =
      own.merged({.bytes_per_pack = 20, .timeout_seconds = 0, .implementation = "mpi"});
  EXPECT_EQ(other.bytes_per_pack, 20);
  EXPECT_EQ(other.timeout_seconds.value(), 0.0);
  EXPECT_EQ(other.implementation, Communication::mpi);
}

}  // namespace
}  // namespace lockstep
