#include "bench/cross_device/gradient_sets.h"

namespace lockstep::bench {

std::int64_t GradientSet::elements() const {
  std::int64_t total = 0;
  for (const auto& shape : shapes) {
    std::int64_t count = 1;
    for (const std::int64_t length : shape) count *= length;
    total += count;
  }
  return total;
}

GradientSet resnet50() {
  GradientSet set{.name = "resnet50", .shapes = {}};
  // A convolution without bias and the weight and bias of the normalization after it.
  const auto convolution = [&](std::int64_t in, std::int64_t out, std::int64_t size) {
    set.shapes.push_back({out, in, size, size});
    set.shapes.push_back({out});
    set.shapes.push_back({out});
  };
  convolution(3, 64, 7);
  std::int64_t in = 64;
  const struct {
    std::int64_t width;
    int blocks;
  } stages[] = {{64, 3}, {128, 4}, {256, 6}, {512, 3}};
  for (const auto& [width, blocks] : stages) {
    for (int block = 0; block < blocks; ++block) {
      convolution(in, width, 1);
      convolution(width, width, 3);
      convolution(width, 4 * width, 1);
      if (block == 0) convolution(in, 4 * width, 1);  // the shortcut
      in = 4 * width;
    }
  }
  set.shapes.push_back({1000, 2048});
  set.shapes.push_back({1000});
  return set;
}

GradientSet bert_base() {
  GradientSet set{.name = "bert", .shapes = {}};
  constexpr std::int64_t kWidth = 768;
  constexpr std::int64_t kInner = 3072;
  const auto linear = [&](std::int64_t in, std::int64_t out) {
    set.shapes.push_back({out, in});
    set.shapes.push_back({out});
  };
  const auto normalization = [&] {
    set.shapes.push_back({kWidth});
    set.shapes.push_back({kWidth});
  };
  for (const std::int64_t rows : {30522, 512, 2}) set.shapes.push_back({rows, kWidth});
  normalization();
  for (int layer = 0; layer < 12; ++layer) {
    for (int projection = 0; projection < 4; ++projection) linear(kWidth, kWidth);
    normalization();
    linear(kWidth, kInner);
    linear(kInner, kWidth);
    normalization();
  }
  linear(kWidth, kWidth);
  return set;
}

}  // namespace lockstep::bench
