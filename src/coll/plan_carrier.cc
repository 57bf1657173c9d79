#include "coll/plan_carrier.h"

#include <new>

#include "base/env.h"

namespace lockstep::coll {
namespace {

constexpr std::align_val_t kAlignment{64};

}  // namespace

void PlanCarrier::Arena::Free::operator()(std::byte* memory) const noexcept {
  ::operator delete(memory, kAlignment);
}

std::byte* PlanCarrier::Arena::reserve(std::size_t bytes) {
  if (bytes > bytes_) {
    memory_.reset();
    bytes_ = 0;
    memory_.reset(static_cast<std::byte*>(::operator new(bytes, kAlignment)));
    bytes_ = bytes;
  }
  return memory_.get();
}

PlanCarrier::PlanCarrier(std::unique_ptr<transport::Link> link, plan::Layout layout,
                         const SessionOptions& options)
    : link_(std::move(link)),
      planner_(std::move(layout), link_->rank(), link_->slot_bytes(),
               options.algorithms.empty() ? environment().algorithms : options.algorithms) {}

const char* PlanCarrier::start(const Call& call, wire::Descriptor& descriptor) {
  const PlannedCall& planned = planner_.plan(call, link_->access(call.exposure()));
  descriptor.plan_hash = planned.hash;
  bindings_.dtype = call.dtype;
  bindings_.op = call.op;
  bindings_.divisor = call.op == Op::mean ? planner_.layout().replicas() : 1;
  bindings_.inputs = call.exposure().inputs;
  bindings_.output = call.exposure().output;
  bindings_.scratch = scratch_.reserve(planned.plan.scratch_count * size_of(call.dtype));
  bindings_.partial =
      partial_.reserve(planned.plan.partial_count * size_of(accumulator_of(call.dtype)));
  operation_.start(planned.plan, bindings_, descriptor, call.exposure());
  return planned.algorithm->name.data();
}

State PlanCarrier::poll() {
  const State state = operation_.poll(*link_);
  waiting_for_ = operation_.waiting_for();
  progress_ = operation_.progress();
  return state;
}

MakeCarrier carriers_over(std::shared_ptr<transport::Fabric> fabric) {
  return [fabric = std::move(fabric)](const GroupSpec& spec, int rank,
                                      const SessionOptions& options) -> std::unique_ptr<Carrier> {
    return std::make_unique<PlanCarrier>(fabric->link(spec.id, spec.members, rank),
                                         plan::Layout(spec.replicas, spec.hosts), options);
  };
}

}  // namespace lockstep::coll
