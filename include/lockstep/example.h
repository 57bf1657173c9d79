// Example: named lists of values, the records TensorFlow's data files hold (tf.train.Example).
//
//   lockstep::Example example;
//   example["image"] = std::vector<float>(784);
//   example["label"] = std::vector<std::int64_t>{7};
//   std::string record = lockstep::encode_example(example);
//
// A FeatureSpec says what a program expects to find in a record, as tf.io.FixedLenFeature and
// tf.io.VarLenFeature do:
//
//   std::vector<lockstep::FeatureSpec> features{
//       lockstep::fixed_float("image", {28, 28}), lockstep::fixed_int64("label"),
//       lockstep::with_default(lockstep::fixed_float("weight"), std::vector<float>{1})};
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace lockstep {

/// The values of one feature: byte strings, floats or integers.
using Feature =
    std::variant<std::vector<std::string>, std::vector<float>, std::vector<std::int64_t>>;
using Example = std::map<std::string, Feature>;

/// The record. Equal examples give equal bytes: features are in the order of their names.
std::string encode_example(const Example& example);

/// The example in a record. A feature that has a name but no list counts as absent; of two features
/// with one name the later counts. DataError if the bytes are no tf.Example; `where` (file, record)
/// is named in it.
Example decode_example(std::string_view record, const std::string& where = {});

/// The alternatives of Feature, in their order.
enum class FeatureKind : std::uint8_t { bytes, float32, int64 };

std::string_view to_string(FeatureKind kind) noexcept;

struct FeatureSpec {
  std::string name;
  FeatureKind kind = FeatureKind::float32;
  /// Of a feature with a fixed number of values; empty: one value.
  std::vector<std::int64_t> shape{};
  /// Any number of values, none if the feature is absent; the shape is not used.
  bool variable_length = false;
  /// Every byte string must have this length.
  std::optional<std::size_t> bytes_length{};
  /// Stands in for an absent feature. One value stands for every element of the shape.
  std::optional<Feature> default_value{};
};

FeatureSpec fixed_float(std::string name, std::vector<std::int64_t> shape = {});
FeatureSpec fixed_int64(std::string name, std::vector<std::int64_t> shape = {});
/// One byte string, of `length` bytes if that is given.
FeatureSpec fixed_bytes(std::string name, std::optional<std::size_t> length = {});
/// A fixed number of byte strings.
FeatureSpec fixed_strings(std::string name, std::vector<std::int64_t> shape);
FeatureSpec variable_float(std::string name);
FeatureSpec variable_int64(std::string name);
FeatureSpec variable_bytes(std::string name);

FeatureSpec with_default(FeatureSpec spec, Feature value);

}  // namespace lockstep
