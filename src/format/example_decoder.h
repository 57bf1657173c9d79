// ExampleDecoder: the values a program wants of a tf.Example record, straight into its memory.
//
//   ExampleDecoder decoder({fixed_float("image", {28, 28}), fixed_int64("label")});
//   for (std::string_view record : records) decoder.decode(record, sink);
//
// The whole record is checked before the sink is asked for anything: a record that does not fit the
// description leaves the sink as it was.
//
// Ownership: the decoder keeps scratch memory of the size of the largest record it has met.
// Thread rule: one thread a decoder.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/example.h"

namespace lockstep::format {

/// Provides the memory. For each feature one call, in the order of the description.
class ExampleSink {
 public:
  virtual ~ExampleSink() = default;
  /// Memory for `count` values of the feature, filled before decode() asks for the next one. May be
  /// null if `count` is 0.
  virtual float* floats(std::size_t feature, std::size_t count) = 0;
  virtual std::int64_t* ints(std::size_t feature, std::size_t count) = 0;
  /// The byte strings themselves; good until the call returns.
  virtual void bytes(std::size_t feature, std::span<const std::string_view> values) = 0;
};

class ExampleDecoder {
 public:
  /// InvalidUsage if two features have one name, a shape is impossible or a default does not fit.
  explicit ExampleDecoder(std::vector<FeatureSpec> features);
  ~ExampleDecoder();
  ExampleDecoder(ExampleDecoder&&) noexcept;
  ExampleDecoder& operator=(ExampleDecoder&&) noexcept;

  /// DataError that names `where` (file, record): data_loss if the bytes are no tf.Example,
  /// invalid_argument if a feature is absent, of another kind or of another count than described.
  void decode(std::string_view record, ExampleSink& sink, std::string_view where = {});

  [[nodiscard]] const std::vector<FeatureSpec>& features() const noexcept;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lockstep::format
