#include "format/example_decoder.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <google/protobuf/arena.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <unordered_map>
#include <utility>

#include "format/elements.h"
#include "format/example.pb.h"
#include "lockstep/error.h"

namespace lockstep::format {
namespace {

std::size_t count_of(const Feature& feature) {
  return std::visit([](const auto& values) { return values.size(); }, feature);
}

std::size_t count_of(const proto::Feature& feature) {
  switch (feature.kind_case()) {
    case proto::Feature::kBytesList:
      return static_cast<std::size_t>(feature.bytes_list().value_size());
    case proto::Feature::kFloatList:
      return static_cast<std::size_t>(feature.float_list().value_size());
    case proto::Feature::kInt64List:
      return static_cast<std::size_t>(feature.int64_list().value_size());
    case proto::Feature::KIND_NOT_SET:
      break;
  }
  return 0;
}

FeatureKind kind_of(const proto::Feature& feature) {
  switch (feature.kind_case()) {
    case proto::Feature::kFloatList:
      return FeatureKind::float32;
    case proto::Feature::kInt64List:
      return FeatureKind::int64;
    default:
      return FeatureKind::bytes;
  }
}

constexpr std::size_t kNamesShown = 20;       // in a message; a record may hold any number
constexpr std::size_t kPositionsKept = 4096;  // of features in a record
constexpr std::size_t kFirstBlock = std::size_t{16} << 10;

[[noreturn]] void refuse(const FeatureSpec& spec, const std::string& why) {
  throw InvalidUsage(fmt::format("feature \"{}\": {}", spec.name, why));
}

/// What follows from a description.
struct Wanted {
  std::size_t count = 0;  // of a fixed one
  /// The default, spread over the shape; nothing if the feature has to be there.
  std::optional<Feature> absent{};
};

Feature nothing_of(FeatureKind kind) {
  switch (kind) {
    case FeatureKind::bytes:
      return std::vector<std::string>();
    case FeatureKind::float32:
      return std::vector<float>();
    case FeatureKind::int64:
      break;
  }
  return std::vector<std::int64_t>();
}

/// The default, one value spread over `count` of them.
Feature checked_default(const FeatureSpec& spec, std::size_t count) {
  Feature value = *spec.default_value;
  if (static_cast<FeatureKind>(value.index()) != spec.kind) {
    refuse(spec,
           fmt::format("the default is {}, the feature {}",
                       to_string(static_cast<FeatureKind>(value.index())), to_string(spec.kind)));
  }
  if (spec.bytes_length) {
    for (const std::string& text : std::get<std::vector<std::string>>(value)) {
      if (text.size() == *spec.bytes_length) continue;
      refuse(spec, fmt::format("the default has {} bytes, bytes_length is {}", text.size(),
                               *spec.bytes_length));
    }
  }
  const std::size_t given = count_of(value);
  if (spec.variable_length || given == count) return value;
  if (given != 1) {
    refuse(spec, fmt::format("the default has {} values, the shape {} wants {} (or one for all)",
                             given, spec.shape, count));
  }
  std::visit(
      [count](auto& values) {
        const auto one = values.front();
        values.assign(count, one);
      },
      value);
  return value;
}

Wanted checked(const FeatureSpec& spec) {
  Wanted wanted;
  if (spec.bytes_length && spec.kind != FeatureKind::bytes) {
    refuse(spec, fmt::format("bytes_length is for byte strings, not for {}", to_string(spec.kind)));
  }
  if (!spec.variable_length) {
    const auto count = bytes_of_shape(spec.shape, sizeof(std::int64_t));
    if (!count) refuse(spec, fmt::format("no array has the shape {}", spec.shape));
    wanted.count = *count / sizeof(std::int64_t);
  }
  if (spec.default_value) {
    wanted.absent = checked_default(spec, wanted.count);
  } else if (spec.variable_length) {
    wanted.absent = nothing_of(spec.kind);
  }
  return wanted;
}

/// Memory for one parsed record after the other; the block grows until the largest one fits.
class Scratch {
 public:
  google::protobuf::Arena& cleared() {
    if (!arena_ || arena_->SpaceAllocated() > size_) {
      const std::size_t needed = arena_ ? arena_->SpaceAllocated() : kFirstBlock;
      arena_.reset();
      size_ = needed + needed / 2;
      block_ = std::make_unique_for_overwrite<char[]>(size_);
      google::protobuf::ArenaOptions options;
      options.initial_block = block_.get();
      options.initial_block_size = size_;
      arena_.emplace(options);
    }
    arena_->Reset();
    return *arena_;
  }

 private:
  std::unique_ptr<char[]> block_;
  std::size_t size_ = 0;
  std::optional<google::protobuf::Arena> arena_;  // in the block, so it goes first
};

}  // namespace

struct ExampleDecoder::State {
  std::vector<FeatureSpec> specs;
  std::vector<Wanted> wanted;
  std::unordered_map<std::string_view, std::size_t> index;  // views of the names in specs
  /// Which feature stood at a position of the last records: files are written by one program, so it
  /// is the same one nearly always and costs a comparison instead of a hash.
  std::vector<std::size_t> at_position;
  std::vector<const proto::Feature*> found;  // by feature; null: absent
  std::vector<std::string_view> views;
  Scratch scratch;

  /// The feature of that name, specs.size() if nobody wants it.
  std::size_t feature_of(const std::string& name, std::size_t position) {
    if (position < at_position.size()) {
      const std::size_t guess = at_position[position];
      if (guess < specs.size() && specs[guess].name == name) return guess;
    }
    const auto known = index.find(name);
    const std::size_t feature = known == index.end() ? specs.size() : known->second;
    if (position >= at_position.size() && position < kPositionsKept) {
      at_position.resize(position + 1, specs.size());
    }
    if (position < at_position.size()) at_position[position] = feature;
    return feature;
  }

  void check(std::size_t feature, const proto::Example& example, std::string_view where) const;
  void hand_over(std::size_t feature, const proto::Feature& from, ExampleSink& sink);
  void hand_over_default(std::size_t feature, ExampleSink& sink);
};

void ExampleDecoder::State::check(std::size_t feature, const proto::Example& example,
                                  std::string_view where) const {
  const FeatureSpec& spec = specs[feature];
  const auto bad = [&](const std::string& what) {
    throw DataError(
        fmt::format("{}{}feature \"{}\" {}", where, where.empty() ? "" : ": ", spec.name, what),
        Code::invalid_argument);
  };
  const proto::Feature* from = found[feature];
  if (from == nullptr) {
    if (wanted[feature].absent) return;
    std::vector<std::string> names;
    for (const auto& entry : example.features().feature()) {
      if (names.size() == kNamesShown) break;
      names.push_back('"' + entry.key() + '"');
    }
    bad(fmt::format("is absent and has no default; the record has {}{}{}",
                    example.features().feature_size(),
                    names.empty() ? " features" : " features: ", fmt::join(names, ", ")));
  }
  if (kind_of(*from) != spec.kind) {
    bad(fmt::format("is {}, expected {}", to_string(kind_of(*from)), to_string(spec.kind)));
  }
  if (!spec.variable_length && count_of(*from) != wanted[feature].count) {
    bad(fmt::format("has {} values, expected {} for the shape {}", count_of(*from),
                    wanted[feature].count, spec.shape));
  }
  if (spec.bytes_length) {
    for (const std::string& text : from->bytes_list().value()) {
      if (text.size() == *spec.bytes_length) continue;
      bad(fmt::format("has a value of {} bytes, expected {}", text.size(), *spec.bytes_length));
    }
  }
}

void ExampleDecoder::State::hand_over(std::size_t feature, const proto::Feature& from,
                                      ExampleSink& sink) {
  switch (specs[feature].kind) {
    case FeatureKind::bytes: {
      const auto& values = from.bytes_list().value();
      views.assign(values.begin(), values.end());
      return sink.bytes(feature, views);
    }
    case FeatureKind::float32: {
      const auto& values = from.float_list().value();
      float* into = sink.floats(feature, static_cast<std::size_t>(values.size()));
      std::copy_n(values.data(), values.size(), into);
      return;
    }
    case FeatureKind::int64: {
      const auto& values = from.int64_list().value();
      std::int64_t* into = sink.ints(feature, static_cast<std::size_t>(values.size()));
      std::copy_n(values.data(), values.size(), into);
      return;
    }
  }
}

void ExampleDecoder::State::hand_over_default(std::size_t feature, ExampleSink& sink) {
  const Feature& value = *wanted[feature].absent;
  if (const auto* texts = std::get_if<std::vector<std::string>>(&value)) {
    views.assign(texts->begin(), texts->end());
    sink.bytes(feature, views);
  } else if (const auto* floats = std::get_if<std::vector<float>>(&value)) {
    std::copy(floats->begin(), floats->end(), sink.floats(feature, floats->size()));
  } else {
    const auto& ints = std::get<std::vector<std::int64_t>>(value);
    std::copy(ints.begin(), ints.end(), sink.ints(feature, ints.size()));
  }
}

ExampleDecoder::ExampleDecoder(std::vector<FeatureSpec> features)
    : state_(std::make_unique<State>()) {
  state_->specs = std::move(features);
  state_->found.resize(state_->specs.size());
  for (std::size_t i = 0; i < state_->specs.size(); ++i) {
    const FeatureSpec& spec = state_->specs[i];
    if (!state_->index.emplace(spec.name, i).second) refuse(spec, "described twice");
    state_->wanted.push_back(checked(spec));
  }
}

ExampleDecoder::~ExampleDecoder() = default;
ExampleDecoder::ExampleDecoder(ExampleDecoder&&) noexcept = default;
ExampleDecoder& ExampleDecoder::operator=(ExampleDecoder&&) noexcept = default;

void ExampleDecoder::decode(std::string_view record, ExampleSink& sink, std::string_view where) {
  State& state = *state_;
  auto& example = *google::protobuf::Arena::CreateMessage<proto::Example>(&state.scratch.cleared());
  if (record.size() > static_cast<std::size_t>(std::numeric_limits<int>::max()) ||
      !example.ParseFromArray(record.data(), static_cast<int>(record.size()))) {
    throw DataError(fmt::format("{}{}{} bytes that are not a tf.Example", where,
                                where.empty() ? "" : ": ", record.size()));
  }
  std::fill(state.found.begin(), state.found.end(), nullptr);
  std::size_t position = 0;
  for (const auto& entry : example.features().feature()) {
    const std::size_t feature = state.feature_of(entry.key(), position++);
    if (feature == state.specs.size()) continue;
    const bool has_list = entry.value().kind_case() != proto::Feature::KIND_NOT_SET;
    state.found[feature] = has_list ? &entry.value() : nullptr;
  }
  for (std::size_t i = 0; i < state.specs.size(); ++i) state.check(i, example, where);
  for (std::size_t i = 0; i < state.specs.size(); ++i) {
    if (state.found[i] != nullptr) {
      state.hand_over(i, *state.found[i], sink);
    } else {
      state.hand_over_default(i, sink);
    }
  }
}

const std::vector<FeatureSpec>& ExampleDecoder::features() const noexcept { return state_->specs; }

}  // namespace lockstep::format
