#include "base/status.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <new>
#include <system_error>

namespace lockstep {
namespace {

using ::testing::ElementsAre;

template <class T>
class EveryKind : public ::testing::Test {};

using Classes =
    ::testing::Types<InvalidUsage, ConfigError, Unsupported, Mismatch, PeerLost, Timeout, Cancelled,
                     EndOfData, DataError, SystemError, InternalError>;
TYPED_TEST_SUITE(EveryKind, Classes);

TYPED_TEST(EveryKind, StatusRaisesTheClassOfItsKindAndComesBackUnchanged) {
  const TypeParam plain("the text");
  const Status status(plain.kind(), Code::aborted, "the text", {1, 4});
  try {
    raise(status);
  } catch (const TypeParam& e) {  // not just any Error
    EXPECT_EQ(e.kind(), plain.kind());
    EXPECT_EQ(e.code(), Code::aborted);
    EXPECT_STREQ(e.what(), "the text");
    EXPECT_THAT(e.culprits(), ElementsAre(1, 4));
    EXPECT_EQ(Status::from_current_exception(), status);
    return;
  } catch (const Error& e) {
    FAIL() << "raised " << to_string(e.kind());
  }
}

TYPED_TEST(EveryKind, ClassHasNameAndDefaultCodeAndBlamesNobody) {
  const TypeParam e("x");
  EXPECT_NE(to_string(e.kind()), "?");
  EXPECT_NE(to_string(e.code()), "?");
  EXPECT_NE(e.code(), Code::ok);
  EXPECT_TRUE(e.culprits().empty());
}

TEST(Error, DefaultCodesAreTheCanonicalOnes) {
  EXPECT_EQ(InvalidUsage("").code(), Code::invalid_argument);
  EXPECT_EQ(ConfigError("").code(), Code::invalid_argument);
  EXPECT_EQ(Unsupported("").code(), Code::unimplemented);
  EXPECT_EQ(Mismatch("").code(), Code::invalid_argument);
  EXPECT_EQ(PeerLost("").code(), Code::unavailable);
  EXPECT_EQ(Timeout("").code(), Code::deadline_exceeded);
  EXPECT_EQ(Cancelled("").code(), Code::cancelled);
  EXPECT_EQ(EndOfData("").code(), Code::out_of_range);
  EXPECT_EQ(DataError("").code(), Code::data_loss);
  EXPECT_EQ(SystemError("").code(), Code::resource_exhausted);
  EXPECT_EQ(InternalError("").code(), Code::internal);
}

TEST(Error, KindsAreNamedLikeTheirClasses) {
  EXPECT_EQ(to_string(ErrorKind::invalid_usage), "InvalidUsage");
  EXPECT_EQ(to_string(ErrorKind::config_error), "ConfigError");
  EXPECT_EQ(to_string(ErrorKind::unsupported), "Unsupported");
  EXPECT_EQ(to_string(ErrorKind::mismatch), "Mismatch");
  EXPECT_EQ(to_string(ErrorKind::peer_lost), "PeerLost");
  EXPECT_EQ(to_string(ErrorKind::timeout), "Timeout");
  EXPECT_EQ(to_string(ErrorKind::cancelled), "Cancelled");
  EXPECT_EQ(to_string(ErrorKind::end_of_data), "EndOfData");
  EXPECT_EQ(to_string(ErrorKind::data_error), "DataError");
  EXPECT_EQ(to_string(ErrorKind::system_error), "SystemError");
  EXPECT_EQ(to_string(ErrorKind::internal), "InternalError");
}

TEST(Error, CodesHaveTensorFlowsNumbersAndNames) {
  constexpr std::string_view names[] = {"OK",
                                        "CANCELLED",
                                        "UNKNOWN",
                                        "INVALID_ARGUMENT",
                                        "DEADLINE_EXCEEDED",
                                        "NOT_FOUND",
                                        "ALREADY_EXISTS",
                                        "PERMISSION_DENIED",
                                        "RESOURCE_EXHAUSTED",
                                        "FAILED_PRECONDITION",
                                        "ABORTED",
                                        "OUT_OF_RANGE",
                                        "UNIMPLEMENTED",
                                        "INTERNAL",
                                        "UNAVAILABLE",
                                        "DATA_LOSS",
                                        "UNAUTHENTICATED"};
  for (int number = 0; number < static_cast<int>(std::size(names)); ++number) {
    EXPECT_EQ(to_string(static_cast<Code>(number)), names[number]) << number;
  }
}

TEST(Status, DefaultIsOk) {
  const Status status;
  EXPECT_TRUE(status.ok());
  EXPECT_EQ(status.code(), Code::ok);
  EXPECT_NO_THROW(raise_if_error(status));
}

TEST(Status, RaiseIfErrorRaises) {
  EXPECT_THROW(raise_if_error(Status(ErrorKind::timeout, Code::deadline_exceeded, "late")),
               Timeout);
}

TEST(Status, ForeignExceptionsBecomeTheKindThatFits) {
  const auto status_of = [](auto thrown) {
    try {
      throw thrown;
    } catch (...) {
      return Status::from_current_exception();
    }
  };
  EXPECT_EQ(status_of(std::bad_alloc()),
            Status(ErrorKind::system_error, Code::resource_exhausted, "out of memory"));
  const Status refused =
      status_of(std::system_error(std::make_error_code(std::errc::connection_refused), "connect"));
  EXPECT_EQ(refused.kind(), ErrorKind::system_error);
  EXPECT_THAT(refused.message(), ::testing::HasSubstr("refused"));
  EXPECT_EQ(status_of(std::logic_error("odd")), Status(ErrorKind::internal, Code::internal, "odd"));
  EXPECT_EQ(status_of(42).kind(), ErrorKind::internal);
}

}  // namespace
}  // namespace lockstep
