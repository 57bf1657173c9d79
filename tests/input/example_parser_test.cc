#include "lockstep/example_parser.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/readers.h"
#include "tests/input/files_to_read.h"
#include "tests/input/helpers.h"

namespace lockstep {
namespace {

using data::parse_example;
using testing::count;
using testing::error_of;
using ::testing::HasSubstr;
using testing::numbers_of;
using testing::Rows;
using testing::Texts;

using ExampleParserTest = testing::FilesToRead;

TEST_F(ExampleParserTest, ExamplesBecomeTensors) {
  Example example;
  example["image"] = std::vector<float>{0, 1, 2, 3, 4, 5};
  example["label"] = std::vector<std::int64_t>{7};
  example["text"] = Texts{"abc"};
  example["words"] = Texts{"ab", "cd"};
  example["some"] = std::vector<std::int64_t>{1, 2, 3};
  const auto parse = parse_example(
      {fixed_float("image", {2, 3}), fixed_int64("label"), fixed_bytes("text"),
       variable_bytes("words"), fixed_strings("words2", {0}), variable_int64("some"),
       variable_float("absent"), with_default(fixed_float("weight"), std::vector<float>{1})});
  example["words2"] = Texts();
  const auto tensors = parse(encode_example(example));
  EXPECT_EQ(tensors.size(), 8u);
  EXPECT_EQ(tensors.at("image").sizes(), at::IntArrayRef({2, 3}));
  EXPECT_EQ(numbers_of(tensors.at("image")), count(0, 6));
  EXPECT_EQ(tensors.at("label").dim(), 0);
  EXPECT_EQ(tensors.at("label").item<std::int64_t>(), 7);
  EXPECT_EQ(numbers_of(tensors.at("text")), Rows({'a', 'b', 'c'}));
  EXPECT_EQ(tensors.at("text").scalar_type(), at::kByte);
  EXPECT_EQ(tensors.at("words").sizes(), at::IntArrayRef({2, 2}));
  EXPECT_EQ(tensors.at("words2").sizes(), at::IntArrayRef({0, 0}));
  EXPECT_EQ(numbers_of(tensors.at("some")), Rows({1, 2, 3}));
  EXPECT_EQ(tensors.at("absent").sizes(), at::IntArrayRef({0}));
  EXPECT_EQ(tensors.at("weight").item<float>(), 1.0F);

  example["words"] = Texts{"ab", "c"};
  EXPECT_THAT(error_of<DataError>([&] { parse(encode_example(example)); }),
              ::testing::AllOf(HasSubstr("\"words\""), HasSubstr("2 and 1 bytes")));
  EXPECT_THAT(error_of<DataError>([&] { parse("no example"); }), HasSubstr("not a tf.Example"));
  EXPECT_THROW(parse_example({fixed_float("x"), fixed_int64("x")}), InvalidUsage);
}

TEST_F(ExampleParserTest, ExamplesAreParsedByManyThreads) {
  Texts records;
  for (std::int64_t i = 0; i < 500; ++i) {
    records.push_back(encode_example({{"x", std::vector<std::int64_t>{i, -i}}}));
  }
  records[100] = "broken";
  write_records("a", records);
  const auto examples = data::tfrecord(path("a"))
                            .map(parse_example({fixed_int64("x", {2})}), Parallel{3})
                            .prefetch(2);
  auto iterator = examples.iterate();
  for (std::int64_t i = 0; i < 500; ++i) {
    if (i == 100) {
      EXPECT_THROW(iterator.next(), DataError);
    } else {
      EXPECT_EQ(numbers_of(iterator.next()->at("x")), Rows({i, -i}));
    }
  }
  EXPECT_FALSE(iterator.next().has_value());
}

}  // namespace
}  // namespace lockstep
