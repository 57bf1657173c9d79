#include "lockstep/optimizer.h"

#include <fmt/format.h>

#include <optional>

#include "base/type_name.h"
#include "train/given_gradients.h"
#include "train/optimizer_core.h"

namespace lockstep {

using detail::OptimizerCore;

namespace detail {

std::shared_ptr<OptimizerCore> make_optimizer(Strategy& strategy,
                                              std::vector<ParameterGroup> groups,
                                              const std::string& type, const MakeOptimizer& make,
                                              const GradientOptions& options, Here here) {
  const Verb verb("optimizer", here);
  return OptimizerCore::create(strategy, std::move(groups), type, make, options);
}

std::string type_name(const std::type_info& type) { return lockstep::type_name(type); }

}  // namespace detail

namespace {

[[noreturn]] void throw_not_in_step() {
  throw InvalidUsage(
      "apply_gradients in cross-replica context: use distributed_apply(strategy, pairs), or call "
      "it inside a step function",
      Code::failed_precondition);
}

}  // namespace

// --- Accumulation ----------------------------------------------------------------------------

Accumulation::Accumulation(std::shared_ptr<OptimizerCore> core, int index)
    : core_(std::move(core)), index_(index) {
  core_->begin_accumulation(index_);
}
Accumulation::Accumulation(Accumulation&& other) noexcept
    : core_(std::move(other.core_)), index_(other.index_) {}
Accumulation::~Accumulation() {
  if (core_) core_->end_accumulation(index_);
}

// --- Optimizer -------------------------------------------------------------------------------

Optimizer::Optimizer(std::shared_ptr<OptimizerCore> core, int index)
    : core_(std::move(core)), index_(index) {}

torch::optim::Optimizer& Optimizer::local() const noexcept {
  return core_->optimizer(core_->copy_of(index_));
}

void Optimizer::require_own(const ReplicaContext& replica) const {
  detail::require_replica(replica, "Optimizer::apply");
  core_->require_copy_per_replica("apply");
  if (replica.state().core == &core_->strategy() && replica.state().index == index_) return;
  throw InvalidUsage(
      "Optimizer::apply with the context of another replica or strategy: pass the optimizer to "
      "run() "
      "and use what the step function gets",
      Code::failed_precondition);
}

Accumulation Optimizer::accumulate() { return {core_, index_}; }

StepResult Optimizer::apply(ReplicaContext& replica, const ApplyOptions& options, Here here) {
  require_own(replica);
  core_->check_complete(index_);
  const detail::Verb verb("apply", here);
  const std::optional<std::int64_t> batch = replica.state().global_batch_size;
  replica.merge_at(here, [core = core_.get(), &options, batch, here](Strategy&) {
    core->reduce_gradients(here, core->describe_scale(options, batch));
    core->step(options);
  });
  return core_->result();  // which stays until all replicas meet again
}

Tensor Optimizer::apply(ReplicaContext& replica, const std::function<Tensor()>& closure,
                        Here here) {
  require_own(replica);
  if (core_->options().non_finite == NonFinite::skip) {
    throw InvalidUsage(
        "apply with a closure: a step that evaluates the loss several times cannot be skipped; say "
        "NonFinite::error or allow",
        Code::failed_precondition);
  }
  tensor::ReplicaGenerator* const generator = core_->step_generator(index_);
  bool first = true;
  const auto evaluate = [&]() -> Tensor {
    if (!std::exchange(first, false)) {
      // What the last evaluation left; all replicas are here before anyone computes anew.
      replica.merge_at(here, [core = core_.get()](Strategy&) { core->clear_gradients(); });
    }
    Tensor loss;
    {
      const at::AutoGradMode recorded(true);
      const tensor::PlacedMemory::Scope gradients(core_->strategy().placed_memory());
      std::optional<tensor::ReplicaGenerator::Scope> own_random;
      if (generator != nullptr) own_random.emplace(core_->strategy().generator(index_));
      loss = closure();
    }
    core_->check_complete(index_);
    const detail::Verb verb("apply", here);
    const std::optional<std::int64_t> batch = replica.state().global_batch_size;
    replica.merge_at(here, [core = core_.get(), batch, here](Strategy&) {
      core->reduce_gradients(here, core->describe_scale({}, batch));
      core->bind_own_gradients();
      core->require_finite(OptimizerCore::When::in_step);
    });
    core_->begin_evaluations(index_);
    return replica.all_reduce(ReduceOp::sum, loss.detach(), here);
  };
  // What an optimizer keeps may be as large as a gradient, but is none.
  const tensor::PlacedMemory::Scope nowhere(nullptr);
  std::optional<tensor::ReplicaGenerator::Scope> random;
  if (generator != nullptr) random.emplace(*generator);
  Tensor loss = local().step(evaluate);
  core_->end_evaluations(index_);
  replica.merge_at(here, [core = core_.get()](Strategy&) {
    core->clear_gradients();
    core->count_step();
  });
  return loss;
}

StepResult Optimizer::apply_gradients(const GradientsAndVariables& pairs,
                                      const ApplyOptions& options, Here here) {
  ReplicaContext* replica = get_replica_context();
  if (replica == nullptr) throw_not_in_step();
  const train::KeptGradients kept = train::keep_defined(pairs, core_->options());
  const detail::Verb verb("apply_gradients", here);
  replica->merge_at(
      here,
      [core = core_.get(), &options](const std::vector<PerReplica<Tensor>>& gradients,
                                     const std::vector<Variable>& variables) {
        ReplicaGradientsAndVariables all;
        for (std::size_t i = 0; i < gradients.size(); ++i) {
          all.emplace_back(gradients[i], variables[i]);
        }
        core->distributed_apply(all, options);
      },
      kept.gradients, kept.variables);
  return core_->result();  // which stays until all replicas meet again
}

void Optimizer::discard(ReplicaContext& replica, Here here) {
  const detail::Verb verb("discard", here);
  replica.merge_at(here, [core = core_.get()](Strategy&) { core->discard(); });
}

// --- all of them -----------------------------------------------------------------------------

void Scheduler::step() {
  const detail::CrossEntry entry(core_->strategy(), "Scheduler::step");
  const detail::Turn turn(core_->strategy());
  for (const auto& each : each_) each->step();
}

DistributedOptimizer::DistributedOptimizer(std::shared_ptr<OptimizerCore> core)
    : core_(std::move(core)), each_(std::make_shared<std::vector<Optimizer>>()) {
  for (int r = 0; r < core_->strategy().replicas(); ++r) each_->emplace_back(core_, r);
}

int DistributedOptimizer::size() const noexcept { return static_cast<int>(each_->size()); }

Optimizer& DistributedOptimizer::select_replica(int replica) const {
  if (replica < 0 || replica >= size()) detail::no_such_component("Optimizer", replica, size());
  // Each run() begins here.
  if (core_->copies() > replica) core_->restore_hooks(replica);
  return (*each_)[static_cast<std::size_t>(replica)];
}

std::vector<torch::optim::Optimizer*> DistributedOptimizer::copies() const {
  std::vector<torch::optim::Optimizer*> all;
  for (int c = 0; c < core_->copies(); ++c) all.push_back(&core_->optimizer(c));
  return all;
}

StepResult DistributedOptimizer::distributed_apply(Strategy& strategy,
                                                   const ReplicaGradientsAndVariables& pairs,
                                                   const ApplyOptions& options, Here here) const {
  const ReplicaContext* replica = get_replica_context();
  if (replica != nullptr && !replica->state().core->is_default()) {
    throw InvalidUsage(
        "distributed_apply in a step function: use apply_gradients(pairs), or call it in a merge "
        "function",
        Code::failed_precondition);
  }
  if (&strategy.core() != &core_->strategy()) {
    throw InvalidUsage(
        fmt::format("Mixing different Strategy objects: distributed_apply with a {} of an "
                    "optimizer that another strategy ({}) made",
                    strategy.name(), core_->strategy().name()),
        Code::failed_precondition);
  }
  const detail::CrossEntry entry(strategy.core(), "distributed_apply", here);
  const detail::Turn turn(core_->strategy());
  core_->distributed_apply(pairs, options);
  return core_->result();
}

StepResult DistributedOptimizer::apply_gradients(const GradientsAndVariables& pairs,
                                                 const ApplyOptions& options, Here here) const {
  const ReplicaContext* replica = get_replica_context();
  if (replica == nullptr || replica->state().core != &core_->strategy()) throw_not_in_step();
  return select_replica(replica->state().index).apply_gradients(pairs, options, here);
}

std::vector<OptimizerVariable> DistributedOptimizer::variables() const {
  return core_->variables();
}
std::int64_t DistributedOptimizer::iterations() const noexcept { return core_->iterations(); }
std::int64_t DistributedOptimizer::skipped() const noexcept { return core_->skipped(); }

void DistributedOptimizer::set_iterations(std::int64_t steps, Here here) const {
  const detail::CrossEntry entry(core_->strategy(), "set_iterations", here);
  const detail::Turn turn(core_->strategy());
  core_->set_iterations(steps);
}

double DistributedOptimizer::learning_rate() const {
  return core_->optimizer(0).param_groups().front().options().get_lr();
}

void DistributedOptimizer::set_learning_rate(double rate) const {
  const detail::CrossEntry entry(core_->strategy(), "set_learning_rate");
  const detail::Turn turn(core_->strategy());
  for (torch::optim::Optimizer* copy : copies()) {
    for (auto& group : copy->param_groups()) group.options().set_lr(rate);
  }
}

void DistributedOptimizer::check_parameters(Here here) const {
  const detail::CrossEntry entry(core_->strategy(), "check_parameters", here);
  const detail::Turn turn(core_->strategy());
  core_->check_parameters();
}

std::string DistributedOptimizer::explain() const { return core_->explain(); }

void DistributedOptimizer::reset(Here here) const {
  const detail::CrossEntry entry(core_->strategy(), "reset", here);
  const detail::Turn turn(core_->strategy());
  core_->discard();
}

}  // namespace lockstep
