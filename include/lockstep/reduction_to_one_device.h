// ReductionToOneDevice: values are combined on one device and the result is copied to its
// destinations. On CPUs that is one pass over memory which writes every destination, by all
// replicas' threads together, however many tensors there are: the default, and the fastest.
//
//   auto largest = [](const std::vector<Tensor>& each) { return torch::stack(each).amax(0); };
//   ReductionToOneDevice ops("CPU:0", largest);
//
// A value of one component that is already where it should go is returned as it is, memory and all.
#pragma once

#include <functional>
#include <optional>

#include "lockstep/cross_device_ops.h"

namespace lockstep {

class ReductionToOneDevice : public CrossDeviceOps {
 public:
  /// Of all components, in replica order, called once; it must not write to them. Not used for
  /// sparse values.
  using Accumulate = std::function<Tensor(const std::vector<Tensor>&)>;

  /// Default device: the first destination. Default accumulation: the sum in the fixed order. A
  /// device that does not exist is a ConfigError when something is reduced.
  explicit ReductionToOneDevice(std::optional<Device> reduce_to_device = {},
                                Accumulate accumulation_fn = {});

 protected:
  std::vector<Mirrored<Tensor>> do_batch_reduce(ReduceOp op, std::span<const ReducePair> pairs,
                                                const CommunicationOptions& options) override;

 private:
  Tensor accumulate(ReduceOp op, const ReducePair& pair) const;

  std::optional<Device> reduce_to_device_;
  Accumulate accumulation_fn_;
};

}  // namespace lockstep
