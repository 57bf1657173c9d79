// The public enumerations: names, sizes and the mapping from C++ types.
#include <gtest/gtest.h>

#include <set>

#include "lockstep/dtype.h"
#include "lockstep/here.h"
#include "lockstep/op.h"

namespace lockstep {
namespace {

template <class T>
void expect_type(DType type, std::string_view name) {
  EXPECT_EQ(dtype_of<T>, type);
  EXPECT_EQ(dtype_of<const T>, type);
  EXPECT_EQ(size_of(type), sizeof(T)) << name;
  EXPECT_EQ(to_string(type), name);
}

TEST(DTypes, MapToCppTypesOfTheSameSize) {
  expect_type<double>(DType::float64, "float64");
  expect_type<float>(DType::float32, "float32");
  expect_type<Float16>(DType::float16, "float16");
  expect_type<BFloat16>(DType::bfloat16, "bfloat16");
  expect_type<std::int8_t>(DType::int8, "int8");
  expect_type<std::int16_t>(DType::int16, "int16");
  expect_type<std::int32_t>(DType::int32, "int32");
  expect_type<std::int64_t>(DType::int64, "int64");
  expect_type<std::uint8_t>(DType::uint8, "uint8");
  expect_type<bool>(DType::boolean, "bool");
  expect_type<std::complex<float>>(DType::complex64, "complex64");
  expect_type<std::complex<double>>(DType::complex128, "complex128");
}

TEST(DTypes, OtherTypesAreNoElements) {
  EXPECT_FALSE(Element<char*>);
  EXPECT_FALSE(Element<long double>);
  EXPECT_FALSE(Element<std::uint32_t>);
}

TEST(DTypes, ClassesAreDisjointAndAccumulatorsAreWideEnough) {
  const std::set<DType> integers = {DType::int8, DType::int16, DType::int32, DType::int64,
                                    DType::uint8};
  const std::set<DType> complex = {DType::complex64, DType::complex128};
  for (int i = 0; i < kDTypeCount; ++i) {
    const auto type = static_cast<DType>(i);
    EXPECT_EQ(is_integer(type), integers.contains(type)) << to_string(type);
    EXPECT_EQ(is_complex(type), complex.contains(type)) << to_string(type);
    const bool half = type == DType::float16 || type == DType::bfloat16;
    EXPECT_EQ(accumulator_of(type), half ? DType::float32 : type) << to_string(type);
  }
}

TEST(Ops, AreNamed) {
  EXPECT_EQ(to_string(Op::sum), "sum");
  EXPECT_EQ(to_string(Op::product), "product");
  EXPECT_EQ(to_string(Op::min), "min");
  EXPECT_EQ(to_string(Op::max), "max");
  EXPECT_EQ(to_string(Op::mean), "mean");
  EXPECT_EQ(static_cast<int>(Op::mean), kOpCount - 1);
}

int line_of_call(Here here = Here::now()) { return here.line; }
std::string_view file_of_call(Here here = Here::now()) { return here.file; }

TEST(HereTest, IsThePlaceOfTheCallNotOfTheDeclaration) {
  EXPECT_EQ(line_of_call(), __LINE__);
  EXPECT_TRUE(file_of_call().ends_with("names_test.cc"));
}

}  // namespace
}  // namespace lockstep
