#include "coll/plan_carrier.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <new>

#include "base/env.h"
#include "kernel/reduce.h"

namespace lockstep::coll {
namespace {

constexpr std::align_val_t kAlignment{64};

/// How a plan that run_again() repeats begins.
constexpr std::size_t kCopyAndPublish = 2;
/// Ranks whose values run_again() adds.
constexpr std::size_t kMostRepeated = 16;

/// An all-reduce through slots by ranks with one replica each: copy, publish, await everybody, add.
bool is_repeatable(const Call& call, const PlannedCall& planned) {
  const plan::Plan& plan = planned.plan;
  if (call.kind != plan::Kind::all_reduce || plan.slot_count == 0 || call.shape_hash != 0 ||
      call.name[0] != '\0' || plan.code.size() < 4) {
    return false;
  }
  const plan::Instruction& sum = plan.code.back();
  const auto awaits = std::span(plan.code).subspan(2, plan.code.size() - 3);
  return plan.code[0].verb == plan::Verb::copy && plan.code[1].verb == plan::Verb::publish &&
         sum.verb == plan::Verb::reduce && sum.source_count <= kMostRepeated &&
         sum.count == call.count && plan.code[0].count == call.count &&
         std::all_of(awaits.begin(), awaits.end(), [](const plan::Instruction& each) {
           return each.verb == plan::Verb::await && each.stage == 1;
         });
}

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
  last_.planned = nullptr;
  const PlannedCall& planned = planner_.plan(call, link_->access(call.exposure()));
  descriptor.plan_hash = planned.hash;
  bind(call, planned.plan);
  operation_.start(planned.plan, bindings_, descriptor, call.exposure());
  call_ = &call;
  planned_ = &planned;
  descriptor_ = &descriptor;
  return planned.algorithm->name.data();
}

void PlanCarrier::bind(const Call& call, const plan::Plan& plan) {
  bindings_.dtype = call.dtype;
  bindings_.op = call.op;
  bindings_.divisor = call.op == Op::mean ? planner_.layout().replicas() : 1;
  bindings_.inputs = call.exposure().inputs;
  bindings_.output = call.exposure().output;
  bindings_.scratch = scratch_.reserve(plan.scratch_count * size_of(call.dtype));
  bindings_.partial = partial_.reserve(plan.partial_count * size_of(accumulator_of(call.dtype)));
}

State PlanCarrier::poll() {
  const State state = operation_.poll(*link_);
  waiting_for_ = operation_.waiting_for();
  progress_ = operation_.progress();
  if (state == State::done && call_ != nullptr) {
    if (is_repeatable(*call_, *planned_)) {
      last_ = {planned_, *descriptor_, call_->count, call_->op, call_->dtype};
    }
    call_ = nullptr;
  }
  return state;
}

Again PlanCarrier::run_again(const SmallCall& call, Recorder& recorder) {
  if (last_.planned == nullptr || last_.count != call.input.count() || last_.op != call.op ||
      last_.dtype != call.input.dtype() || link_->failed()) {
    return Again::refused;
  }
  static const transport::Exposure nothing;
  last_.descriptor.sequence = call.sequence;
  if (link_->begin(last_.descriptor, nothing, transport::Staging::slots) != transport::kNobody) {
    return Again::refused;
  }
  const plan::Plan& plan = last_.planned->plan;
  recorder.begin(last_.descriptor, call.here, last_.planned->algorithm->name.data());
  std::memcpy(link_->slot(link_->rank()), call.input.data(), call.input.bytes());
  link_->publish(1);
  for (std::size_t i = kCopyAndPublish; i + 1 < plan.code.size(); ++i) {
    const int peer = plan.code[i].peer;
    const auto there = [&] { return link_->reached(peer, 1); };
    if (!there() && !(link_->spin(there) && there())) return Again::pending;
  }
  link_->expect_slot(call.input.bytes());
  const plan::Instruction& sum = plan.code.back();
  std::array<kernel::Input, kMostRepeated> inputs;
  std::size_t next = 0;
  for (const plan::Place& place : plan.sources_of(sum)) {
    inputs[next++].data = place.rank == link_->rank() ? call.input.data() : link_->slot(place.rank);
  }
  const kernel::Target target{call.output.data()};
  kernel::reduce({.op = call.op,
                  .dtype = last_.dtype,
                  .inputs = std::span(inputs).first(next),
                  .merges = plan.merges_of(sum),
                  .targets = {&target, 1},
                  .count = last_.count,
                  .weights = {},
                  .divisor = call.op == Op::mean ? planner_.layout().replicas() : 1.0,
                  .reuse = kernel::Reuse::soon});
  return Again::done;
}

const wire::Descriptor& PlanCarrier::resume(const Call& call) {
  const plan::Plan& plan = last_.planned->plan;
  bind(call, plan);
  operation_.resume(plan, bindings_, last_.descriptor, call.exposure(), kCopyAndPublish);
  call_ = nullptr;
  return last_.descriptor;
}

MakeCarrier carriers_over(std::shared_ptr<transport::Fabric> fabric) {
  return [fabric = std::move(fabric)](const GroupSpec& spec, int rank,
                                      const SessionOptions& options) -> std::unique_ptr<Carrier> {
    return std::make_unique<PlanCarrier>(fabric->link(spec.id, spec.members, rank),
                                         plan::Layout(spec.replicas, spec.hosts), options);
  };
}

}  // namespace lockstep::coll
