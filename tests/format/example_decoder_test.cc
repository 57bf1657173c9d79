#include "format/example_decoder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "lockstep/error.h"

namespace lockstep::format {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::ThrowsMessage;
using Floats = std::vector<float>;
using Ints = std::vector<std::int64_t>;
using Texts = std::vector<std::string>;

/// Keeps what it is given, and in which order.
struct Kept final : ExampleSink {
  std::map<std::size_t, Floats> float_values;
  std::map<std::size_t, Ints> int_values;
  std::map<std::size_t, Texts> text_values;
  std::vector<std::size_t> order;

  float* floats(std::size_t feature, std::size_t count) override {
    order.push_back(feature);
    return (float_values[feature] = Floats(count)).data();
  }
  std::int64_t* ints(std::size_t feature, std::size_t count) override {
    order.push_back(feature);
    return (int_values[feature] = Ints(count)).data();
  }
  void bytes(std::size_t feature, std::span<const std::string_view> values) override {
    order.push_back(feature);
    text_values[feature] = Texts(values.begin(), values.end());
  }
};

Kept decoded(std::vector<FeatureSpec> features, const Example& example) {
  ExampleDecoder decoder(std::move(features));
  Kept kept;
  decoder.decode(encode_example(example), kept, "f.tfrecord, record 2");
  return kept;
}

auto refused_with(const std::string& what) { return ThrowsMessage<DataError>(HasSubstr(what)); }
auto misuse_with(const std::string& what) { return ThrowsMessage<InvalidUsage>(HasSubstr(what)); }

TEST(ExampleDecoder, FillsTheSinkInTheDescriptionsOrder) {
  const Example example{
      {"a", Floats{1, 2, 3, 4}}, {"b", Ints{5}}, {"c", Texts{"x", "yz"}}, {"unwanted", Ints{9}}};
  const Kept kept =
      decoded({variable_bytes("c"), fixed_int64("b"), fixed_float("a", {2, 2})}, example);
  EXPECT_THAT(kept.order, ElementsAre(0, 1, 2));
  EXPECT_THAT(kept.text_values.at(0), ElementsAre("x", "yz"));
  EXPECT_THAT(kept.int_values.at(1), ElementsAre(5));
  EXPECT_THAT(kept.float_values.at(2), ElementsAre(1, 2, 3, 4));
}

TEST(ExampleDecoder, OneDecoderForManyRecordsOfAnySize) {
  ExampleDecoder decoder({variable_float("x"), variable_bytes("s")});
  for (const std::size_t count : {0, 1, 100'000, 3, 400'000, 2, 0}) {
    Kept kept;
    const Example example{{"x", Floats(count, 0.5F)},
                          {"s", Texts(count / 1000, "a long string of text")}};
    decoder.decode(encode_example(example), kept);
    EXPECT_EQ(kept.float_values.at(0), Floats(count, 0.5F));
    EXPECT_EQ(kept.text_values.at(1), Texts(count / 1000, "a long string of text"));
  }
}

TEST(ExampleDecoder, FeaturesMayChangeTheirPlaces) {
  ExampleDecoder decoder({fixed_int64("a"), fixed_int64("b"), fixed_int64("c")});
  const auto one = [](const char* name, std::int64_t value) {
    return encode_example({{name, Ints{value}}});
  };
  const std::string records[] = {
      one("a", 1) + one("b", 2) + one("c", 3), one("c", 3) + one("a", 1) + one("b", 2),
      one("x", 0) + one("b", 0) + one("b", 2) + one("a", 1) + one("c", 3)};
  for (int round = 0; round < 2; ++round) {
    for (const std::string& record : records) {
      Kept kept;
      decoder.decode(record, kept);
      EXPECT_THAT(kept.int_values.at(0), ElementsAre(1));
      EXPECT_THAT(kept.int_values.at(1), ElementsAre(2));
      EXPECT_THAT(kept.int_values.at(2), ElementsAre(3));
    }
  }
}

TEST(ExampleDecoder, DefaultsStandInForAbsentFeatures) {
  const Kept kept = decoded({with_default(fixed_float("a", {2, 2}), Floats{7}),
                             with_default(fixed_int64("b", {2}), Ints{1, 2}),
                             with_default(fixed_bytes("c"), Texts{"none"}), variable_float("d"),
                             with_default(variable_int64("e"), Ints{4, 5, 6})},
                            {});
  EXPECT_THAT(kept.float_values.at(0), ElementsAre(7, 7, 7, 7));
  EXPECT_THAT(kept.int_values.at(1), ElementsAre(1, 2));
  EXPECT_THAT(kept.text_values.at(2), ElementsAre("none"));
  EXPECT_THAT(kept.float_values.at(3), IsEmpty());
  EXPECT_THAT(kept.int_values.at(4), ElementsAre(4, 5, 6));
}

TEST(ExampleDecoder, ErrorsNameTheFeatureWhatWasExpectedAndFound) {
  const Example example{{"a", Floats{1, 2, 3}}, {"b", Texts{"xyz"}}};
  EXPECT_THAT(
      [&] { decoded({fixed_int64("label")}, example); },
      refused_with("f.tfrecord, record 2: feature \"label\" is absent and has no default; the "
                   "record has 2 features: \"a\", \"b\""));
  EXPECT_THAT([&] { decoded({fixed_int64("a")}, example); },
              refused_with("feature \"a\" is float32, expected int64"));
  EXPECT_THAT([&] { decoded({variable_float("b")}, example); },
              refused_with("feature \"b\" is bytes, expected float32"));
  EXPECT_THAT(
      [&] {
        decoded({fixed_float("a", {2, 2})}, example);
      },
      refused_with("feature \"a\" has 3 values, expected 4 for the shape [2, 2]"));
  EXPECT_THAT([&] { decoded({fixed_bytes("b", 4)}, example); },
              refused_with("feature \"b\" has a value of 3 bytes, expected 4"));
  try {
    decoded({fixed_int64("a")}, example);
    FAIL();
  } catch (const DataError& e) {
    EXPECT_EQ(e.code(), Code::invalid_argument);
  }
}

TEST(ExampleDecoder, ARecordThatDoesNotFitLeavesTheSinkAlone) {
  ExampleDecoder decoder({fixed_int64("a"), fixed_int64("b")});
  Kept kept;
  EXPECT_THROW(decoder.decode(encode_example({{"a", Ints{1}}}), kept), DataError);
  EXPECT_THAT(kept.order, IsEmpty());
  decoder.decode(encode_example({{"a", Ints{1}}, {"b", Ints{2}}}), kept);
  EXPECT_THAT(kept.order, ElementsAre(0, 1));
}

TEST(ExampleDecoder, OtherBytesAreDataLoss) {
  ExampleDecoder decoder({});
  Kept kept;
  decoder.decode("", kept);
  try {
    decoder.decode("\xff\xff\xff", kept, "here");
    FAIL();
  } catch (const DataError& e) {
    EXPECT_EQ(e.code(), Code::data_loss);
    EXPECT_THAT(e.what(), HasSubstr("here: 3 bytes that are not a tf.Example"));
  }
}

TEST(ExampleDecoder, ImpossibleDescriptionsAreMisuse) {
  EXPECT_THAT(
      [] {
        ExampleDecoder({fixed_float("a"), fixed_int64("a")});
      },
      misuse_with("feature \"a\": described twice"));
  EXPECT_THAT([] { ExampleDecoder({fixed_float("a", {-1})}); }, misuse_with("[-1]"));
  EXPECT_THAT(
      [] {
        ExampleDecoder({fixed_float("a", {1LL << 40, 1LL << 40})});
      },
      misuse_with("no array has the shape"));
  EXPECT_THAT([] { ExampleDecoder({with_default(fixed_float("a"), Ints{1})}); },
              misuse_with("the default is int64, the feature float32"));
  EXPECT_THAT(
      [] {
        ExampleDecoder({with_default(fixed_float("a", {3}), Floats{1, 2})});
      },
      misuse_with("the default has 2 values"));
  EXPECT_THAT([] { ExampleDecoder({with_default(fixed_bytes("a", 3), Texts{"ab"})}); },
              misuse_with("the default has 2 bytes"));
  EXPECT_THAT([] { ExampleDecoder({{.name = "a", .bytes_length = 1}}); },
              misuse_with("bytes_length is for byte strings"));
}

}  // namespace
}  // namespace lockstep::format
