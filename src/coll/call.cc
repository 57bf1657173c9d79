#include "coll/call.h"

namespace lockstep::coll {

Call::Range Call::add(std::span<const ConstBuffer> parts) {
  const Range range{pieces_.size(), parts.size()};
  std::uint64_t begin = 0;
  for (const ConstBuffer& part : parts) {
    // Inputs are never written; one type of piece for both keeps the engine simple.
    pieces_.push_back(
        {static_cast<std::byte*>(const_cast<void*>(part.data())), begin, begin + part.count()});
    begin += part.count();
  }
  return range;
}

void Call::seal() {
  const auto pieces = [this](Range range) {
    return transport::Pieces{pieces_.span().subspan(range.first, range.size)};
  };
  for (const Range& range : inputs_) sealed_inputs_.push_back(pieces(range));
  exposure_ = {sealed_inputs_.span(), pieces(output_)};
}

}  // namespace lockstep::coll
