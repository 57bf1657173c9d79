#include "lockstep/example_parser.h"

#include <ATen/EmptyTensor.h>
#include <c10/core/Allocator.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>

#include "base/mutex.h"
#include "format/example_decoder.h"
#include "lockstep/error.h"

namespace lockstep::data {

namespace {

/// Memory as malloc gives it. torch's allocator asks for an alignment of 64 bytes, which costs more
/// than the rest of a small tensor; the records of a batch are copied together anyway.
class PlainAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) const override {
    void* const memory = std::malloc(std::max<std::size_t>(bytes, 1));
    if (memory == nullptr) throw std::bad_alloc();
    return {memory, memory, &std::free, at::Device(at::kCPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &std::free; }
};

Tensor new_tensor(at::IntArrayRef shape, at::ScalarType type) {
  static PlainAllocator allocator;
  return at::detail::empty_generic(shape, &allocator, c10::DispatchKeySet(c10::DispatchKey::CPU),
                                   type, c10::nullopt);
}

/// Makes the tensors and hands out their memory.
class Tensors final : public format::ExampleSink {
 public:
  explicit Tensors(const std::vector<FeatureSpec>& features) : features_(features) {}

  float* floats(std::size_t feature, std::size_t count) override {
    return make(feature, count, at::kFloat).data_ptr<float>();
  }
  std::int64_t* ints(std::size_t feature, std::size_t count) override {
    return make(feature, count, at::kLong).data_ptr<std::int64_t>();
  }
  void bytes(std::size_t feature, std::span<const std::string_view> values) override {
    const FeatureSpec& spec = features_[feature];
    const std::size_t length =
        values.empty() ? spec.bytes_length.value_or(0) : values.front().size();
    shape_.clear();
    if (spec.variable_length) {
      shape_.push_back(static_cast<std::int64_t>(values.size()));
    } else {
      shape_ = spec.shape;
    }
    shape_.push_back(static_cast<std::int64_t>(length));
    auto* into = add(spec, shape_, at::kByte).data_ptr<std::uint8_t>();
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (values[i].size() != length) {
        throw DataError(
            fmt::format("feature \"{}\": its byte strings have {} and {} bytes; a tensor needs "
                        "equal lengths (decode_example() gives them as they are)",
                        spec.name, length, values[i].size()),
            Code::invalid_argument);
      }
      if (length > 0) std::memcpy(into + i * length, values[i].data(), length);
    }
  }

  std::map<std::string, Tensor> take() && { return std::move(tensors_); }

 private:
  Tensor& make(std::size_t feature, std::size_t count, at::ScalarType type) {
    const FeatureSpec& spec = features_[feature];
    if (!spec.variable_length) return add(spec, spec.shape, type);
    const std::int64_t length[] = {static_cast<std::int64_t>(count)};
    return add(spec, length, type);
  }
  Tensor& add(const FeatureSpec& spec, at::IntArrayRef shape, at::ScalarType type) {
    return tensors_.insert_or_assign(spec.name, new_tensor(shape, type)).first->second;
  }

  const std::vector<FeatureSpec>& features_;
  std::map<std::string, Tensor> tensors_;
  std::vector<std::int64_t> shape_;
};

}  // namespace

/// Decoders nobody uses at the moment: as many as calls have met.
class ExampleParser::Decoders {
 public:
  explicit Decoders(std::vector<FeatureSpec> features) : features_(std::move(features)) {
    give_back(std::make_unique<format::ExampleDecoder>(features_));  // which checks them
  }

  [[nodiscard]] const std::vector<FeatureSpec>& features() const noexcept { return features_; }
  std::unique_ptr<format::ExampleDecoder> take() {
    {
      const MutexLock lock(mutex_);
      if (!idle_.empty()) {
        auto decoder = std::move(idle_.back());
        idle_.pop_back();
        return decoder;
      }
    }
    return std::make_unique<format::ExampleDecoder>(features_);
  }
  void give_back(std::unique_ptr<format::ExampleDecoder> decoder) {
    const MutexLock lock(mutex_);
    idle_.push_back(std::move(decoder));
  }

 private:
  const std::vector<FeatureSpec> features_;
  Mutex mutex_;
  std::vector<std::unique_ptr<format::ExampleDecoder>> idle_ GUARDED_BY(mutex_);
};

ExampleParser::ExampleParser(std::vector<FeatureSpec> features)
    : decoders_(std::make_shared<Decoders>(std::move(features))) {}

std::map<std::string, Tensor> ExampleParser::operator()(const std::string& record) const {
  auto decoder = decoders_->take();
  Tensors tensors(decoders_->features());
  decoder->decode(record, tensors);  // one that throws is not given back
  decoders_->give_back(std::move(decoder));
  return std::move(tensors).take();
}

}  // namespace lockstep::data
