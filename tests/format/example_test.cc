#include "lockstep/example.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "lockstep/error.h"
#include "tests/format/bytes.h"

namespace lockstep {
namespace {

using format::bytes;
using format::Bytes;
using testing::HasSubstr;
using testing::ThrowsMessage;
using Floats = std::vector<float>;
using Ints = std::vector<std::int64_t>;
using Texts = std::vector<std::string>;

Example sample() {
  Example example;
  example["label"] = Ints{7, -1, std::numeric_limits<std::int64_t>::min()};
  example["image"] = Floats{0.5F, -INFINITY, 1e-40F};
  example["name"] = Texts{"a", std::string("\0\xff", 2), ""};
  example[""] = Floats{};
  return example;
}

TEST(Example, RoundTrip) {
  EXPECT_EQ(decode_example(encode_example(sample())), sample());
  EXPECT_EQ(decode_example(encode_example({})), Example());
  EXPECT_EQ(decode_example(""), Example());
  EXPECT_EQ(decode_example(encode_example({{"none", Texts{}}})), (Example{{"none", Texts{}}}));
}

TEST(Example, BytesAreThoseOfTensorFlow) {
  const std::string a = encode_example({{"a", Ints{1, 300}}});
  EXPECT_EQ(bytes(a), bytes({0x0a, 0x0e, 0x0a, 0x0c, 0x0a, 1, 'a', 0x12, 7, 0x1a, 5, 0x0a, 3, 1,
                             0xac, 0x02}));
  const std::string b = encode_example({{"b", Floats{1}}, {"a", Texts{"xy"}}});
  EXPECT_EQ(bytes(b), bytes({0x0a, 0x1c, 0x0a, 0x0b, 0x0a, 1,    'a',  0x12, 6,    0x0a,
                             4,    0x0a, 2,    'x',  'y',  0x0a, 0x0d, 0x0a, 1,    'b',
                             0x12, 0x08, 0x12, 0x06, 0x0a, 4,    0,    0,    0x80, 0x3f}));
}

TEST(Example, ReadsListsThatAreNotPacked) {
  const Bytes raw = bytes({0x0a, 0x0d, 0x0a, 0x0b, 0x0a, 1, 'a', 0x12, 6, 0x1a, 4, 8, 1, 8, 2});
  EXPECT_EQ(decode_example(format::text(raw)), (Example{{"a", Ints{1, 2}}}));
}

TEST(Example, TheLaterOfTwoFeaturesCounts) {
  const std::string first = encode_example({{"a", Ints{1}}});
  const std::string second = encode_example({{"a", Floats{2}}});
  EXPECT_EQ(decode_example(first + second), (Example{{"a", Floats{2}}}));
}

TEST(Example, AFeatureWithoutAListIsAbsent) {
  const Bytes raw = bytes({0x0a, 7, 0x0a, 5, 0x0a, 1, 'a', 0x12, 0});
  EXPECT_EQ(decode_example(format::text(raw)), Example());
}

TEST(Example, OtherBytesAreRefused) {
  EXPECT_THAT(
      [] { decode_example("no example", "train.tfrecord, record 3"); },
      ThrowsMessage<DataError>(HasSubstr("train.tfrecord, record 3: 10 bytes that are not")));
  EXPECT_THAT([] { decode_example("\x0a\x7f"); }, ThrowsMessage<DataError>(HasSubstr("2 bytes")));
}

TEST(Example, EveryTruncationIsRefused) {
  const std::string whole = encode_example(sample());
  for (std::size_t size = 1; size < whole.size(); ++size) {
    EXPECT_THROW(decode_example(whole.substr(0, size)), DataError) << size;
  }
}

TEST(Example, TurnedBitsNeverDoMoreThanThrow) {
  format::with_each_bit_turned(bytes(encode_example(sample())), [](const Bytes& turned) {
    try {
      (void)encode_example(decode_example(format::text(turned)));
    } catch (const DataError&) {
    }
  });
}

TEST(FeatureSpec, FactoriesSayWhatTheyMean) {
  const FeatureSpec image = fixed_float("image", {28, 28});
  EXPECT_EQ(image.name, "image");
  EXPECT_EQ(image.kind, FeatureKind::float32);
  EXPECT_EQ(image.shape, (Ints{28, 28}));
  EXPECT_FALSE(image.variable_length);
  EXPECT_EQ(fixed_int64("label").kind, FeatureKind::int64);
  EXPECT_EQ(fixed_bytes("png").bytes_length, std::nullopt);
  EXPECT_EQ(fixed_bytes("raw", 784).bytes_length, 784U);
  EXPECT_EQ(fixed_strings("words", {3}).shape, Ints{3});
  EXPECT_TRUE(variable_float("x").variable_length);
  EXPECT_EQ(variable_int64("x").kind, FeatureKind::int64);
  EXPECT_EQ(variable_bytes("x").kind, FeatureKind::bytes);
  EXPECT_EQ(with_default(fixed_int64("x"), Ints{3}).default_value, Feature(Ints{3}));
}

}  // namespace
}  // namespace lockstep
