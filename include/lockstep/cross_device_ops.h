// CrossDeviceOps: how values of several devices are combined and copied. A strategy has one; your
// own subclass works in any strategy.
//
//   MirroredStrategy strategy({.cross_device_ops = std::make_shared<ReductionToOneDevice>()});
//   ops.reduce(ReduceOp::sum, gradients, gradients);        // an all-reduce
//   ops.reduce(ReduceOp::mean, loss, "CPU:0");
//
// Called in cross-replica context only; the results are equal, bit for bit, on every destination,
// and no result requires a gradient. A mean of integers is floating (float32 of 8 and 16 bits,
// float64 of 32 and 64). Sparse values (COO): what one replica has at one place is added up first;
// what different replicas have stays side by side. If a component is dense, so is the result.
// Maximum and minimum are of dense values only.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lockstep/communication_options.h"
#include "lockstep/reduce_op.h"
#include "lockstep/value.h"
#include "lockstep/variable.h"

namespace lockstep {

/// Where a result goes: a device, several, or wherever a value or a variable already lives (which
/// is not written).
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

/// What can be reduced: the components of a distributed value or of a variable; or one tensor,
/// which counts as the only component, where it lives.
class ReduceValue {
 public:
  template <class L>
  ReduceValue(const Distributed<Tensor, L>& value)
      : components_(local_results(value)), devices_(value.shared_devices()) {}
  ReduceValue(const Variable& variable);
  ReduceValue(const Tensor& tensor);

  [[nodiscard]] const std::vector<Tensor>& components() const noexcept { return components_; }
  [[nodiscard]] const DeviceList& devices() const noexcept { return *devices_; }
  /// Whether it is one tensor that is not distributed.
  [[nodiscard]] bool is_plain() const noexcept { return plain_; }

 private:
  std::vector<Tensor> components_;
  std::shared_ptr<const DeviceList> devices_;
  bool plain_ = false;
};

struct ReducePair {
  ReduceValue value;
  Destinations destinations;
};

class CrossDeviceOps {
 public:
  virtual ~CrossDeviceOps() = default;

  /// Checked first, on every path: cross-replica context, destinations that are not empty and
  /// exist, components that live where they say; InvalidUsage or ConfigError otherwise.
  Mirrored<Tensor> reduce(ReduceOp op, const ReduceValue& value, const Destinations& destinations,
                          const CommunicationOptions& options = {});
  /// As many results as pairs, in their order; none for none.
  std::vector<Mirrored<Tensor>> batch_reduce(ReduceOp op, std::span<const ReducePair> pairs,
                                             const CommunicationOptions& options = {});
  Mirrored<Tensor> broadcast(const Tensor& tensor, const Destinations& destinations);
  /// The components one after another along an axis, in replica order; only its length may differ.
  Mirrored<Tensor> all_gather(const ReduceValue& value, const Destinations& destinations,
                              std::int64_t axis = 0, const CommunicationOptions& options = {});

 protected:
  /// Pairs are checked and at least one.
  virtual std::vector<Mirrored<Tensor>> do_batch_reduce(ReduceOp op,
                                                        std::span<const ReducePair> pairs,
                                                        const CommunicationOptions& options) = 0;
  virtual Mirrored<Tensor> do_broadcast(const Tensor& tensor, const DeviceList& destinations);
  /// Components are dense and fit; axis is not negative.
  virtual Tensor do_all_gather(const std::vector<Tensor>& components, std::int64_t axis,
                               const CommunicationOptions& options);
};

}  // namespace lockstep
