#include "lockstep/example.h"

#include <fmt/format.h>

#include <limits>
#include <utility>

#include "format/example.pb.h"
#include "lockstep/error.h"

namespace lockstep {
namespace {

constexpr std::size_t kMaxRecord = std::numeric_limits<int>::max();  // protobuf's own limit

void put(const std::vector<std::string>& values, proto::Feature& into) {
  auto& list = *into.mutable_bytes_list();
  for (const std::string& value : values) list.add_value(value);
}

void put(const std::vector<float>& values, proto::Feature& into) {
  into.mutable_float_list()->mutable_value()->Add(values.begin(), values.end());
}

void put(const std::vector<std::int64_t>& values, proto::Feature& into) {
  into.mutable_int64_list()->mutable_value()->Add(values.begin(), values.end());
}

std::optional<Feature> feature_of(const proto::Feature& from) {
  switch (from.kind_case()) {
    case proto::Feature::kBytesList: {
      const auto& value = from.bytes_list().value();
      return std::vector<std::string>(value.begin(), value.end());
    }
    case proto::Feature::kFloatList: {
      const auto& value = from.float_list().value();
      return std::vector<float>(value.begin(), value.end());
    }
    case proto::Feature::kInt64List: {
      const auto& value = from.int64_list().value();
      return std::vector<std::int64_t>(value.begin(), value.end());
    }
    case proto::Feature::KIND_NOT_SET:
      break;
  }
  return std::nullopt;
}

}  // namespace

std::string encode_example(const Example& example) {
  proto::Example message;
  auto& features = *message.mutable_features();
  for (const auto& [name, feature] : example) {
    auto& entry = *features.add_feature();
    entry.set_key(name);
    std::visit([&](const auto& values) { put(values, *entry.mutable_value()); }, feature);
  }
  const std::size_t bytes = message.ByteSizeLong();
  if (bytes > kMaxRecord) {
    throw InvalidUsage(
        fmt::format("encode_example: the record would have {} bytes, more than the {} a tf.Example "
                    "may have; split it",
                    bytes, kMaxRecord));
  }
  return message.SerializeAsString();
}

Example decode_example(std::string_view record, const std::string& where) {
  proto::Example message;
  if (record.size() > kMaxRecord ||
      !message.ParseFromArray(record.data(), static_cast<int>(record.size()))) {
    throw DataError(fmt::format("{}{}{} bytes that are not a tf.Example", where,
                                where.empty() ? "" : ": ", record.size()));
  }
  Example example;
  for (const auto& entry : message.features().feature()) {
    if (auto feature = feature_of(entry.value())) {
      example.insert_or_assign(entry.key(), *std::move(feature));
    } else {
      example.erase(entry.key());
    }
  }
  return example;
}

std::string_view to_string(FeatureKind kind) noexcept {
  switch (kind) {
    case FeatureKind::bytes:
      return "bytes";
    case FeatureKind::float32:
      return "float32";
    case FeatureKind::int64:
      return "int64";
  }
  return "?";
}

FeatureSpec fixed_float(std::string name, std::vector<std::int64_t> shape) {
  return {.name = std::move(name), .kind = FeatureKind::float32, .shape = std::move(shape)};
}

FeatureSpec fixed_int64(std::string name, std::vector<std::int64_t> shape) {
  return {.name = std::move(name), .kind = FeatureKind::int64, .shape = std::move(shape)};
}

FeatureSpec fixed_bytes(std::string name, std::optional<std::size_t> length) {
  return {.name = std::move(name), .kind = FeatureKind::bytes, .bytes_length = length};
}

FeatureSpec fixed_strings(std::string name, std::vector<std::int64_t> shape) {
  return {.name = std::move(name), .kind = FeatureKind::bytes, .shape = std::move(shape)};
}

FeatureSpec variable_float(std::string name) {
  return {.name = std::move(name), .kind = FeatureKind::float32, .variable_length = true};
}

FeatureSpec variable_int64(std::string name) {
  return {.name = std::move(name), .kind = FeatureKind::int64, .variable_length = true};
}

FeatureSpec variable_bytes(std::string name) {
  return {.name = std::move(name), .kind = FeatureKind::bytes, .variable_length = true};
}

FeatureSpec with_default(FeatureSpec spec, Feature value) {
  spec.default_value = std::move(value);
  return spec;
}

}  // namespace lockstep
