// AllReduceCrossDeviceOps: values that stay on the devices they come from are all-reduced in packs;
// all others go through ReductionToOneDevice. The bits are the same on every road.
//
//   AllReduceCrossDeviceOps ops({.all_reduce_alg = "hierarchical_copy", .num_packs = 8});
//
// Packs say which memory travels together, and (hierarchical_copy) over which devices: nothing is
// copied to form one. They never change a value. docs/cross-device.md says which op to use when.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string_view>

#include "lockstep/cross_device_ops.h"
#include "lockstep/device_table.h"
#include "lockstep/reduction_to_one_device.h"

namespace lockstep {

/// nccl: NVIDIA's library, for GPUs; where it is not built, and on CPUs, the numbers of
/// ReductionToOneDevice, after one line in the log.
/// hierarchical_copy: each pack is summed on a device of one half and passed to its partner in the
/// other; from these two the others of each half copy.
class AllReduceAlgorithm {
 public:
  enum Value : std::uint8_t { nccl, hierarchical_copy };

  AllReduceAlgorithm(Value value) noexcept : value_(value) {}
  /// InvalidUsage for another word.
  AllReduceAlgorithm(std::string_view word);
  AllReduceAlgorithm(const char* word) : AllReduceAlgorithm(std::string_view(word)) {}

  operator Value() const noexcept { return value_; }

 private:
  Value value_;
};

struct AllReduceOptions {
  AllReduceAlgorithm all_reduce_alg = AllReduceAlgorithm::nccl;
  /// More than 0: all values of a dtype are laid end to end and cut into so many packs.
  int num_packs = 1;
  /// Else, if both are more than 0: neighbours of at most so many bytes form packs of at most so
  /// many tensors. Else each tensor travels alone.
  std::int64_t agg_small_grads_max_bytes = 0;
  int agg_small_grads_max_group = 10;
};

class AllReduceCrossDeviceOps : public CrossDeviceOps {
 public:
  /// InvalidUsage for a negative number.
  explicit AllReduceCrossDeviceOps(AllReduceOptions options = {});

  [[nodiscard]] const AllReduceOptions& options() const noexcept { return options_; }

 protected:
  std::vector<Mirrored<Tensor>> do_batch_reduce(ReduceOp op, std::span<const ReducePair> pairs,
                                                const CommunicationOptions& options) override;

 private:
  AllReduceOptions options_;
  ReductionToOneDevice one_device_;
  std::atomic<bool> explained_fallback_ = false;
  std::atomic<bool> explained_sparse_ = false;
};

class NcclAllReduce : public AllReduceCrossDeviceOps {
 public:
  explicit NcclAllReduce(int num_packs = 1);
};

class HierarchicalCopyAllReduce : public AllReduceCrossDeviceOps {
 public:
  explicit HierarchicalCopyAllReduce(int num_packs = 1);
};

/// What a MirroredStrategy uses if it is told nothing: ReductionToOneDevice unless all devices are
/// GPUs, then nccl in one pack.
std::shared_ptr<CrossDeviceOps> default_cross_device_ops(const DeviceList& devices,
                                                         const DeviceTable& table);

/// The older choice, by how GPUs are linked, which DistributionStrategy::configure() makes: for
/// eight or more linked as in a DGX-1, hierarchical_copy with a pack for each; for others nccl in
/// one pack; ReductionToOneDevice if a device is no GPU or not there.
std::shared_ptr<CrossDeviceOps> choose_cross_device_ops(const DeviceList& devices,
                                                        const DeviceTable& table);

}  // namespace lockstep
