// PlanCarrier: carries out calls as plans over a link.
#pragma once

#include <memory>

#include "coll/carrier.h"
#include "coll/operation.h"
#include "coll/planner.h"
#include "coll/scratch.h"
#include "transport/fabric.h"

namespace lockstep::coll {

class PlanCarrier final : public Carrier {
 public:
  PlanCarrier(std::unique_ptr<transport::Link> link, plan::Layout layout,
              const SessionOptions& options);

  transport::GroupEnd& end() noexcept override { return *link_; }
  const char* start(const Call& call, wire::Descriptor& descriptor) override;
  State poll() override;
  const Again* begin_again(Op op, const ConstBuffer& input, const Buffer& output,
                           std::uint64_t sequence) override;
  bool finish_again(const ConstBuffer& input, const Buffer& output) override;
  void go_on(const Call& call) override;
  void retire() noexcept override;
  [[nodiscard]] std::uint64_t progress() const noexcept override {
    return operation_.progress(*link_);
  }
  [[nodiscard]] Moved moved() const override { return operation_.moved(*link_); }

 private:
  /// Whether buffers of the call before and these would be given the same plan.
  bool lie_alike(const ConstBuffer& input, const Buffer& output);
  void bind(const Call& call, const plan::Plan& plan);

  std::unique_ptr<transport::Link> link_;
  Planner planner_;
  Bindings bindings_;
  Operation operation_;
  Scratch scratch_;
  Scratch partial_;

  /// The call before, as far as begin_again() needs it.
  struct Last {
    const PlannedCall* planned = nullptr;
    std::uint64_t count = 0;
    std::size_t slot = 0;  // bytes
    Op op = Op::sum;
    DType dtype = DType::float32;
    double divisor = 1;
    plan::Access access = plan::Access::messages;
    const void* input = nullptr;  // known to have that access, as is the output
    const void* output = nullptr;
    bool repeatable = false;  // and over
    Again again;
  };
  Last last_;
};

/// Carriers over the links of a fabric.
MakeCarrier carriers_over(std::shared_ptr<transport::Fabric> fabric);

}  // namespace lockstep::coll
