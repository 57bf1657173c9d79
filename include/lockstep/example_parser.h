// ExampleParser: the tensors in a tf.Example record.
//
//   auto examples = data::tfrecord("train-*.tfrecord")
//                       .map(data::parse_example({fixed_float("image", {28, 28}),
//                                                 fixed_int64("label")}), Parallel{2});
//   for (const auto& example : examples) use(example.at("image"));
//
// A fixed feature becomes a tensor of its shape, one of variable length a row of its values:
// float32 or int64. A byte string becomes uint8[length]; several, fixed_strings() or
// variable_bytes(), get their shape in front, and must be equally long.
//
// A record that does not fit is a DataError naming the feature. Threads: any number may call one
// parser at once.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/example.h"
#include "lockstep/tensor.h"

namespace lockstep::data {

class ExampleParser {
 public:
  /// InvalidUsage for a description that makes no sense.
  explicit ExampleParser(std::vector<FeatureSpec> features);

  std::map<std::string, Tensor> operator()(const std::string& record) const;

 private:
  class Decoders;
  std::shared_ptr<Decoders> decoders_;
};

inline ExampleParser parse_example(std::vector<FeatureSpec> features) {
  return ExampleParser(std::move(features));
}

}  // namespace lockstep::data
