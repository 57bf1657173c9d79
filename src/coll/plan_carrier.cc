#include "coll/plan_carrier.h"

#include <algorithm>
#include <array>
#include <span>

#include "base/cache_line.h"
#include "kernel/reduce.h"

namespace lockstep::coll {
namespace {

/// Ranks whose values finish_again() adds.
constexpr std::size_t kMostRepeated = 16;
constexpr std::size_t kCopyAndPublish = 2;  // instructions
constexpr std::uint32_t kOnlyStage = 1;

/// Of a plan that is_repeatable(): what stands between copy, publish and the sum.
std::span<const plan::Instruction> awaits_of(const plan::Plan& plan) {
  return std::span(plan.code).subspan(kCopyAndPublish, plan.code.size() - kCopyAndPublish - 1);
}

/// An all-reduce through slots by a rank with one replica: copy, publish, await everybody, add.
bool is_repeatable(const Call& call, const plan::Plan& plan) {
  if (call.kind != plan::Kind::all_reduce || plan.slot_count == 0 || call.shape_hash != 0 ||
      call.wire || call.name != wire::Name() || !call.description.empty() ||
      plan.code.size() < kCopyAndPublish + 2 ||
      plan.slot_most * size_of(call.dtype) > transport::kMostOffered) {
    return false;
  }
  const plan::Instruction& sum = plan.code.back();
  const auto awaits = awaits_of(plan);
  return plan.code[0].verb == plan::Verb::copy && plan.code[0].count == call.count &&
         plan.code[1].verb == plan::Verb::publish && sum.verb == plan::Verb::reduce &&
         sum.count == call.count && sum.source_count <= kMostRepeated &&
         std::all_of(awaits.begin(), awaits.end(), [](const plan::Instruction& each) {
           return each.verb == plan::Verb::await && each.stage == kOnlyStage;
         });
}

/// The ranks of a host have agreed on the staging of all their groups.
Preferences preferences_over(const transport::Link& link, const SessionOptions& options) {
  Preferences preferences = preferences_of(options);
  preferences.costs.staging = link.staging();
  return preferences;
}

}  // namespace

PlanCarrier::PlanCarrier(std::unique_ptr<transport::Link> link, plan::Layout layout,
                         const SessionOptions& options)
    : link_(std::move(link)),
      planner_(std::move(layout), link_->rank(), link_->slot_bytes(),
               preferences_over(*link_, options)) {
  bindings_.slot_stores = planner_.staging().stores;
}

const char* PlanCarrier::start(const Call& call, wire::Descriptor& descriptor) {
  const plan::Access access = link_->access(call.exposure());
  const PlannedCall& planned = planner_.plan(call, access);
  descriptor.plan_hash = planned.hash;
  bind(call, planned.plan);
  operation_.start(planned.plan, bindings_, descriptor, call.exposure());
  last_.repeatable = false;
  last_.planned = is_repeatable(call, planned.plan) ? &planned : nullptr;
  if (last_.planned != nullptr) {
    last_.count = call.count;
    last_.slot = planned.plan.slot_most * size_of(call.dtype);
    last_.op = call.op;
    last_.dtype = call.dtype;
    last_.access = access;
    last_.input = last_.output = nullptr;
    last_.again = {descriptor, planned.algorithm->name.data()};
    last_.divisor = call.op == Op::mean ? planner_.layout().replicas() : 1;
  }
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
  last_.repeatable = state == State::done && last_.planned != nullptr;
  return state;
}

bool PlanCarrier::lie_alike(const ConstBuffer& input, const Buffer& output) {
  if (input.data() == last_.input && output.data() == last_.output) return true;
  // A rank that plans anew asks for the access, so must one that does not.
  const auto piece = [&](const void* data) {
    return transport::Pieces::Piece{static_cast<std::byte*>(const_cast<void*>(data)), 0,
                                    input.count()};
  };
  const transport::Pieces::Piece in = piece(input.data());
  const transport::Pieces::Piece out = piece(output.data());
  const transport::Pieces inputs{{&in, 1}};
  if (link_->access({.inputs = {&inputs, 1}, .output = {{&out, 1}}}) != last_.access) return false;
  last_.input = input.data();
  last_.output = output.data();
  return true;
}

const Carrier::Again* PlanCarrier::begin_again(Op op, const ConstBuffer& input,
                                               const Buffer& output, std::uint64_t sequence) {
  if (!last_.repeatable || last_.count != input.count() || last_.op != op ||
      last_.dtype != input.dtype() || link_->failed() || !lie_alike(input, output)) {
    return nullptr;
  }
  last_.again.descriptor.sequence = sequence;
  const std::span data(static_cast<const std::byte*>(input.data()), input.bytes());
  const int late = link_->offer(last_.again.descriptor, last_.slot, data, kOnlyStage);
  return late == transport::kNobody ? &last_.again : nullptr;
}

bool PlanCarrier::finish_again(const ConstBuffer& input, const Buffer& output) {
  const plan::Plan& plan = last_.planned->plan;
  for (const plan::Instruction& await : awaits_of(plan)) {
    const int peer = await.peer;
    const auto there = [&] { return link_->reached(peer, kOnlyStage); };
    if (!there() && !(link_->spin(there) && there())) return false;
    // All lines come over at once, instead of one by one when they are added.
    fetch_lines(link_->slot(peer), input.bytes());
  }
  const plan::Instruction& sum = plan.code.back();
  std::array<kernel::Input, kMostRepeated> inputs;
  std::size_t next = 0;
  const int own = link_->rank();
  const std::size_t width = size_of(last_.dtype);
  for (const plan::Place& place : plan.sources_of(sum)) {
    inputs[next++].data =
        place.rank == own ? input.data() : link_->slot(place.rank) + place.offset * width;
  }
  const kernel::Target target{output.data()};
  kernel::reduce({.op = last_.op,
                  .dtype = last_.dtype,
                  .inputs = std::span(inputs).first(next),
                  .merges = plan.merges_of(sum),
                  .targets = {&target, 1},
                  .count = last_.count,
                  .weights = {},
                  .divisor = last_.divisor,
                  .reuse = kernel::Reuse::soon});
  return true;
}

void PlanCarrier::go_on(const Call& call) {
  bind(call, last_.planned->plan);
  operation_.resume(last_.planned->plan, bindings_, last_.again.descriptor, call.exposure(),
                    kCopyAndPublish);
}

void PlanCarrier::retire() noexcept {
  last_.repeatable = false;
  link_->retire();
}

MakeCarrier carriers_over(std::shared_ptr<transport::Fabric> fabric) {
  return [fabric = std::move(fabric)](const GroupSpec& spec, int rank,
                                      const SessionOptions& options) -> std::unique_ptr<Carrier> {
    return std::make_unique<PlanCarrier>(fabric->link(spec.id, spec.members, rank),
                                         plan::Layout(spec.replicas, spec.hosts), options);
  };
}

}  // namespace lockstep::coll
