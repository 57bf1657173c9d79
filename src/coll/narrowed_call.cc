#include "coll/narrowed_call.h"

#include "kernel/reduce.h"

namespace lockstep::coll {
namespace {

/// A reduction of one input changes its form and nothing else.
void convert(DType dtype, const kernel::Input& from, const kernel::Target& to, std::size_t count) {
  if (count == 0) return;
  constexpr std::uint8_t kNoMerge = 0;
  kernel::reduce({.op = Op::sum,
                  .dtype = dtype,
                  .inputs = {&from, 1},
                  .merges = {&kNoMerge, 1},
                  .targets = {&to, 1},
                  .count = count,
                  .reuse = kernel::Reuse::soon});
}

}  // namespace

NarrowedCall::NarrowedCall(const Call& call, Scratch& scratch) : wide_(call) {
  const DType dtype = *call.wire;
  narrow_.kind = call.kind;
  narrow_.op = call.op;
  narrow_.reduces = call.reduces;
  narrow_.dtype = dtype;
  narrow_.wire = call.wire;
  narrow_.count = call.count;
  narrow_.order = call.order;
  narrow_.shape_hash = call.shape_hash;
  narrow_.name = call.name;
  narrow_.description = call.description;
  narrow_.timeout = call.timeout;
  narrow_.here = call.here;

  const auto inputs = call.exposure().inputs;
  const std::size_t bytes = call.count * size_of(dtype);
  std::byte* at = result_ = scratch.reserve(inputs.size() * bytes);
  for (const transport::Pieces& input : inputs) {
    for (const auto& piece : input.pieces) {
      convert(dtype, {piece.data, kernel::Form::partial}, {at + piece.begin * size_of(dtype)},
              piece.end - piece.begin);
    }
    const ConstBuffer narrowed(dtype, at, call.count);
    narrow_.add_input({&narrowed, 1});
    at += bytes;
  }
  const ConstBuffer result(dtype, result_, call.count);
  narrow_.set_output({&result, 1});
  narrow_.seal();
}

void NarrowedCall::widen() const {
  const DType dtype = *wide_.wire;
  for (const auto& piece : wide_.exposure().output.pieces) {
    convert(dtype, {result_ + piece.begin * size_of(dtype)}, {piece.data, kernel::Form::partial},
            piece.end - piece.begin);
  }
}

}  // namespace lockstep::coll
