// CrossDeviceOps: how values of several devices are combined and copied. A strategy has one; your
// own subclass works in any strategy. Called in cross-replica context only; the results are equal,
// bit for bit, on every destination.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "lockstep/reduce_op.h"
#include "lockstep/value.h"
#include "lockstep/variable.h"

namespace lockstep {

/// Where a result goes: a device, several, or wherever a value or a variable already lives.
class Destinations {
 public:
  Destinations(DeviceList devices) : devices_(std::move(devices)) {}
  Destinations(const Device& device) : devices_{device} {}
  Destinations(const char* device);  // gaps are filled from the current device
  Destinations(const std::string& device) : Destinations(device.c_str()) {}
  Destinations(const Variable& variable) : devices_(variable.devices()) {}
  Destinations(const Tensor& tensor);
  template <class T, class L>
  Destinations(const Distributed<T, L>& value) : devices_(value.devices()) {}

  [[nodiscard]] const DeviceList& devices() const noexcept { return devices_; }

 private:
  DeviceList devices_;
};

struct ReducePair {
  PerReplica<Tensor> value;
  Destinations destinations;
};

class CrossDeviceOps {
 public:
  virtual ~CrossDeviceOps() = default;

  /// Checked on every path: cross-replica context, a valid op, a value with components, and
  /// destinations that are not empty; InvalidUsage otherwise.
  Mirrored<Tensor> reduce(ReduceOp op, const PerReplica<Tensor>& value,
                          const Destinations& destinations);
  /// As many results as pairs, in their order; none for none.
  std::vector<Mirrored<Tensor>> batch_reduce(ReduceOp op, std::span<const ReducePair> pairs);
  Mirrored<Tensor> broadcast(const Tensor& tensor, const Destinations& destinations);

 protected:
  virtual std::vector<Mirrored<Tensor>> do_batch_reduce(ReduceOp op,
                                                        std::span<const ReducePair> pairs) = 0;
  virtual Mirrored<Tensor> do_broadcast(const Tensor& tensor, const DeviceList& destinations);
};

/// Combines on one device, then copies to the destinations. Sums in the fixed order unless given
/// another way to accumulate: a function of all components, called once.
class ReductionToOneDevice : public CrossDeviceOps {
 public:
  using Accumulate = std::function<Tensor(const std::vector<Tensor>&)>;

  explicit ReductionToOneDevice(std::optional<Device> reduce_to_device = {},
                                Accumulate accumulate = {});

 protected:
  std::vector<Mirrored<Tensor>> do_batch_reduce(ReduceOp op,
                                                std::span<const ReducePair> pairs) override;

 private:
  std::optional<Device> reduce_to_device_;
  Accumulate accumulate_;
};

}  // namespace lockstep
