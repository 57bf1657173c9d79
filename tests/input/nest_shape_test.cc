#include "lockstep/detail/nest_shape.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "lockstep/error.h"

namespace lockstep::detail {
namespace {

template <class T>
T through_words(const T& nest) {
  ShapeWriter out;
  write_shape(nest, out);
  ShapeReader in(out.words());
  return read_shape<T>(in);
}

enum class Kind { small = 3 };

TEST(NestShape, ContainersKeysTypesAndLengths) {
  using Keyed = std::map<Kind, std::array<Tensor, 2>>;
  const auto keyed =
      through_words(Keyed{{Kind::small, {torch::zeros({0, 2}), torch::zeros({0}, torch::kBool)}}});
  EXPECT_EQ(keyed.at(Kind::small)[0].sizes(), at::IntArrayRef({0, 2}));
  EXPECT_EQ(keyed.at(Kind::small)[1].scalar_type(), torch::kBool);
  using Named = std::unordered_map<std::string, std::optional<Tensor>>;
  const auto named = through_words(Named{{"", torch::zeros({0})}, {"eight by", std::nullopt}});
  EXPECT_TRUE(named.at(""));
  EXPECT_FALSE(named.at("eight by"));
  EXPECT_TRUE(through_words(std::vector<Tensor>{}).empty());
}

TEST(NestShape, WhatCannotBeMadeIsKnown) {
  struct NoDefault {
    explicit NoDefault(Tensor t) : x(std::move(t)) {}
    Tensor x;
    static auto lockstep_members() { return std::tuple(&NoDefault::x); }
  };
  static_assert(!has_shape<NoDefault>());
  static_assert(!has_shape<std::map<double, Tensor>>());
  static_assert(has_shape<std::pair<Tensor, std::map<std::string, Tensor>>>());
}

TEST(NestShape, WordsThatEndTooSoonAreAnError) {
  using Nest = std::tuple<std::map<std::string, Tensor>, std::vector<Tensor>>;
  ShapeWriter out;
  write_shape(Nest{{{"a name of two words", torch::zeros({0, 7})}}, {torch::zeros({0})}}, out);
  for (std::size_t length = 0; length < out.words().size(); ++length) {
    ShapeReader in(std::span(out.words()).first(length));
    EXPECT_THROW(read_shape<Nest>(in), InternalError) << length;
  }
}

}  // namespace
}  // namespace lockstep::detail
