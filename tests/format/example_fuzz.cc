// Any bytes: they are no tf.Example, or what is read of them survives a round trip, and the decoder
// gives out what decode_example() finds.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <vector>

#include "format/example_decoder.h"
#include "lockstep/error.h"

namespace {

using namespace lockstep;

struct Kept final : format::ExampleSink {
  std::vector<float> float_values;
  std::vector<std::int64_t> int_values;
  std::vector<std::string> text_values;
  float* floats(std::size_t, std::size_t count) override {
    float_values.resize(count);
    return float_values.data();
  }
  std::int64_t* ints(std::size_t, std::size_t count) override {
    int_values.resize(count);
    return int_values.data();
  }
  void bytes(std::size_t, std::span<const std::string_view> values) override {
    text_values.assign(values.begin(), values.end());
  }
};

template <class T>
std::size_t count_in(const Example& example, const char* name) {
  const auto found = example.find(name);
  return found == example.end() ? 0 : std::get<std::vector<T>>(found->second).size();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static format::ExampleDecoder decoder(
      {variable_float("f"), variable_int64("i"), variable_bytes("b")});
  const std::string_view record(reinterpret_cast<const char*>(data), size);
  Example example;
  try {
    example = decode_example(record);
  } catch (const DataError&) {
    return 0;
  }
  const std::string again = encode_example(example);
  if (encode_example(decode_example(again)) != again) std::abort();
  Kept kept;
  try {
    decoder.decode(record, kept);
  } catch (const DataError&) {
    return 0;
  }
  if (kept.float_values.size() != count_in<float>(example, "f")) std::abort();
  if (kept.int_values.size() != count_in<std::int64_t>(example, "i")) std::abort();
  if (kept.text_values.size() != count_in<std::string>(example, "b")) std::abort();
  return 0;
}
