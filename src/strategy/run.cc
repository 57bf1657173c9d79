#include "strategy/run.h"

#include <fmt/format.h>

#include <optional>

#include "base/log.h"
#include "base/type_name.h"
#include "tensor/operator_threads.h"

namespace lockstep::detail {

namespace {

std::string place_of(const MergeCall& call) {
  const std::string callable = type_name(*call.callable);
  if (call.here.file[0] == '\0') return callable;
  return fmt::format("{}:{} with {}", call.here.file, call.here.line, callable);
}

}  // namespace

Run::Run(StrategyCore& core, const RunOptions& options, const Body& body)
    : core_(core),
      options_(options),
      body_(body),
      lanes_(core.lanes()),
      count_(core.replicas()),
      sequential_(options.execution.value_or(core.options().replicas.execution) ==
                  Execution::sequential),
      caller_(thread_context()),
      errors_(static_cast<std::size_t>(count_)) {
  for (int i = 0; i < count_; ++i) replicas_.push_back(std::make_unique<Replica>());
}

void Run::execute() {
  const std::function<void(int)> task = [this](int index) { run_replica(index); };
  for (int i = 1; i < count_; ++i) lanes_.post(i, task);
  run_replica(0);
  // A lane's last touch of this object is its increment of done_.
  wait(0, [&] { return done_.load() == count_; });

  std::exception_ptr first;
  std::vector<std::exception_ptr> others;
  {
    const MutexLock lock(mutex_);
    for (int i = 0; i < count_; ++i) {
      const std::exception_ptr& error = errors_[static_cast<std::size_t>(i)];
      if (error && i == first_error_) first = error;
      if (error && i != first_error_) others.push_back(error);
    }
  }
  core_.set_last_errors(others);
  if (!others.empty()) {
    log_warning("{}: {} more replicas threw; last_errors() has them", core_.name(), others.size());
  }
  if (first) std::rethrow_exception(first);
}

ThreadContext Run::replica_context(int index, ReplicaContext& context) const {
  ThreadContext result = caller_;
  result.modes.push_back({core_.shared_from_this(), &context});
  result.callers_creators = result.creators.size();
  result.device = context.device().str();
  if (index > 0) result.names += fmt::format("replica_{}/", index);
  return result;
}

void Run::run_replica(int index) {
  ReplicaState state{.core = &core_,
                     .index = index,
                     .id = core_.first_replica() + index,
                     .device = core_.options().worker_devices[static_cast<std::size_t>(index)],
                     .run = this,
                     .thread = std::this_thread::get_id(),
                     .global_batch_size = options_.global_batch_size};
  ReplicaContext context(state);
  try {
    // Turns mean nothing once a replica has failed: those that end may pass them on in any order.
    if (index > 0 && sequential_) wait(index, [&] { return stop_.load() || has_turn(index); });
    if (!stop_.load()) {
      const ContextSwap in_replica(replica_context(index, context));
      std::optional<at::ThreadLocalStateGuard> torch;
      if (index > 0) torch.emplace(torch_state_);
      // Lanes have it from the beginning; what the last step function has changed is put right.
      if (index > 0) tensor::set_operator_threads(core_.threads_per_replica());
      const tensor::ReplicaGenerator::Scope random(core_.generator(index));
      const tensor::PlacedMemory::Scope gradients(core_.placed_memory());
      body_(context);
    }
  } catch (const Stopped&) {
    // Another replica's error is on its way to the caller.
  } catch (...) {
    fail(index, std::current_exception());
  }
  finish(index);
}

void Run::finish(int index) {
  replica(index).at.store(At::done);
  returned_.fetch_add(1);
  // Seen from both sides: whoever parks looks at returned_ after it has parked.
  if (parked_.load() > 0 && !stop_.load()) fail_unequal(index);
  pass_turn(index);
  // With the last one done the caller goes on and this run is no more: from there on only the
  // gates, which belong to the lanes, may be touched.
  Lanes& lanes = lanes_;
  done_.fetch_add(1);
  lanes.wake_all();
}

void Run::fail_unequal(int index) {
  fail(index, std::make_exception_ptr(
                  InvalidUsage(table("the replicas made different numbers of merge calls"),
                               Code::failed_precondition)));
}

void Run::fail(int index, std::exception_ptr error) {
  {
    const MutexLock lock(mutex_);
    std::exception_ptr& slot = errors_[static_cast<std::size_t>(index)];
    if (!slot) slot = std::move(error);
    if (first_error_ < 0) first_error_ = index;
  }
  stop_.store(true);
  lanes_.wake_all();
}

bool Run::has_turn(int index) const { return !sequential_ || turn_.load() == index; }

void Run::pass_turn(int index) {
  if (!sequential_) return;
  turn_.store(index + 1);
  lanes_.wake_all();
}

void Run::wait(int index, FunctionRef<bool()> ready) {
  lanes_.park(index, ready, [&] { report_stall(index); });
}

void Run::merge(int index, const MergeCall& call) {
  if (stop_.load()) throw Stopped();
  Replica& self = replica(index);
  const std::uint64_t meeting = meetings_.load();
  self.call = call;
  ++self.merges;
  self.at.store(At::parked);
  // The turn first: with the last one parked the meeting takes place and deals out turns anew.
  pass_turn(index);
  parked_.fetch_add(1);
  if (returned_.load() > 0 && !stop_.load()) fail_unequal(index);
  lanes_.wake(0);
  if (index == 0) {
    lead();
  } else {
    wait(index, [&] { return stop_.load() || (meetings_.load() != meeting && has_turn(index)); });
  }
  if (stop_.load()) throw Stopped();
}

void Run::lead() {
  wait(0, [&] { return stop_.load() || parked_.load() == count_; });
  if (stop_.load()) return;
  try {
    if (!same_place()) {
      throw InvalidUsage(table("the replicas stand in different merge calls"),
                         Code::failed_precondition);
    }
    std::vector<void*> frames;
    for (const auto& each : replicas_) frames.push_back(each->call.frame);
    // Replica 0's names, everything else as in the caller of run().
    ThreadContext cross = caller_;
    cross.names = thread_context().names;
    cross.variable_names = thread_context().variable_names;
    const ContextSwap in_merge(std::move(cross));
    const tensor::ReplicaGenerator::Pause process_wide;
    const tensor::PlacedMemory::Scope no_gradients(nullptr);
    replica(0).call.run(core_.strategy(), frames);
  } catch (...) {
    fail(0, std::current_exception());
    return;
  }
  for (const auto& each : replicas_) each->at.store(At::running);
  parked_.store(0);
  turn_.store(0);
  meetings_.fetch_add(1);
  lanes_.wake_all();
}

bool Run::same_place() const {
  for (const auto& each : replicas_) {
    const MergeCall& first = replicas_[0]->call;
    if (each->call.run != first.run || each->call.here.line != first.here.line ||
        std::string_view(each->call.here.file) != first.here.file) {
      return false;
    }
  }
  return true;
}

std::string Run::table(const char* problem) const {
  std::string text = fmt::format("{}: {}:", core_.name(), problem);
  for (int i = 0; i < count_; ++i) {
    const Replica& each = *replicas_[static_cast<std::size_t>(i)];
    const At at = each.at.load();
    text += fmt::format("\n  replica {} ({}): ", core_.first_replica() + i,
                        core_.options().worker_devices[static_cast<std::size_t>(i)].short_name());
    if (at == At::parked) {
      text += fmt::format("waits in merge call {} at {}", each.merges, place_of(each.call));
    } else {
      // merges of a running replica belongs to its thread.
      text += at == At::done ? fmt::format("returned after {} merge calls", each.merges)
                             : std::string("is running");
    }
  }
  return text + "\nEvery replica must make the same merge calls in the same order.";
}

void Run::report_stall(int index) const {
  std::string missing;
  for (int i = 0; i < count_; ++i) {
    const Replica& each = *replicas_[static_cast<std::size_t>(i)];
    if (each.at.load() == At::running) missing += (missing.empty() ? "" : ", ") + std::to_string(i);
  }
  if (!missing.empty() && index == 0) {
    log_warning("{}: waiting for replica {}, which is still computing", core_.name(), missing);
  }
}

Variable Run::shared_variable(int index, const std::string& name,
                              const std::function<Variable()>& create) {
  const std::string key = canonical_variable_name(name);
  if (index == 0) {
    Variable created = create();
    {
      const MutexLock lock(mutex_);
      variables_[key].push_back(created);
    }
    lanes_.wake_all();
    return created;
  }
  std::size_t& taken = replica(index).variables_taken[key];
  const auto there = [&] {
    const MutexLock lock(mutex_);
    const auto found = variables_.find(key);
    return found != variables_.end() && found->second.size() > taken;
  };
  const auto first_paused = [&] { return replica(0).at.load() != At::running; };
  wait(index, [&] { return stop_.load() || there() || first_paused(); });
  if (stop_.load()) throw Stopped();
  if (!there()) {
    throw InvalidUsage(
        fmt::format("Tried to create variable {} with mismatching name on device {}: replica 0 has "
                    "made no such variable. Every replica must create the same variables in the "
                    "same order.",
                    name, index),
        Code::failed_precondition);
  }
  const MutexLock lock(mutex_);
  return variables_[key][taken++];
}

}  // namespace lockstep::detail
