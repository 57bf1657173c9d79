// CollectiveAllReduce: reduces over the replicas of all workers, each a rank of a coll::Session
// which contributes one or more local devices.
//
//   CollectiveAllReduce ops(std::move(session), {"CPU:0", "CPU:1"}, {.timeout_seconds = 60});
//   ops.reduce(ReduceOp::mean, gradients, gradients);    // over all devices of all workers
//
// Every worker makes the same calls in the same order; one that asks for something else is found
// before data is mixed (Mismatch), one that does not come is named (Timeout, PeerLost). A mean
// divides by the replicas of all workers. Dense results are row-major. A batch goes out last tensor
// first, in packs of bytes_per_pack, and nothing of another thread's call comes in between. Sparse
// values are gathered in rank order, whatever their numbers of rows: nothing is made dense.
// broadcast() stays within the worker.
#pragma once

#include <memory>

#include "lockstep/coll/session.h"
#include "lockstep/cross_device_ops.h"

namespace lockstep {

class CollectiveAllReduce : public CrossDeviceOps {
 public:
  /// InvalidUsage unless the session counts as many replicas of this rank as there are devices.
  CollectiveAllReduce(coll::Session session, DeviceList devices, CommunicationOptions options = {});
  ~CollectiveAllReduce() override;

  /// Replicas of all workers.
  [[nodiscard]] int group_size() const noexcept;
  [[nodiscard]] coll::Session& session() noexcept;

 protected:
  std::vector<Mirrored<Tensor>> do_batch_reduce(ReduceOp op, std::span<const ReducePair> pairs,
                                                const CommunicationOptions& options) override;
  Tensor do_all_gather(const std::vector<Tensor>& components, std::int64_t axis,
                       const CommunicationOptions& options) override;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep
