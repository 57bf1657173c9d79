#include "coll/executor.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <new>
#include <numeric>
#include <optional>

#include "base/env.h"
#include "base/log.h"
#include "kernel/reduce.h"

namespace lockstep::coll {
namespace {

constexpr std::align_val_t kAlignment{64};
/// Lines of history in the log after a failure; Session::history() has all.
constexpr std::uint64_t kLoggedHistory = 8;

double seconds(Duration duration) { return std::chrono::duration<double>(duration).count(); }

void fill_small(Call& call, Op op, ConstBuffer input, ConstBuffer output, Here here) {
  call.kind = plan::Kind::all_reduce;
  call.op = op;
  call.reduces = true;
  call.dtype = input.dtype();
  call.count = input.count();
  call.here = here;
  call.add_input({&input, 1});
  call.set_output({&output, 1});
  call.seal();
}

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

void Executor::Arena::Free::operator()(std::byte* memory) const noexcept {
  ::operator delete(memory, kAlignment);
}

std::byte* Executor::Arena::reserve(std::size_t bytes) {
  if (bytes > bytes_) {
    memory_.reset();
    bytes_ = 0;
    memory_.reset(static_cast<std::byte*>(::operator new(bytes, kAlignment)));
    bytes_ = bytes;
  }
  return memory_.get();
}

Executor::Executor(std::unique_ptr<transport::Link> link, plan::Layout layout,
                   const SessionOptions& options, std::uint32_t group)
    : link_(std::move(link)),
      options_(options),
      group_(group),
      planner_(std::move(layout), link_->rank(), link_->slot_bytes(),
               options.algorithms.empty() ? environment().algorithms : options.algorithms) {}

Status Executor::run(const Call& call, std::uint64_t ticket, Deadline deadline) {
  // Whatever happens, the next operation gets its turn.
  struct Turn {
    Turnstile& turnstile;
    ~Turn() { turnstile.pass(); }
  };
  Status status;
  try {
    if (!turnstile_.wait(ticket, deadline)) {
      link_->fail({ErrorKind::timeout, Code::deadline_exceeded,
                   fmt::format("operation {} did not start within {:.1f} s: earlier operations of "
                               "rank {} are still under way",
                               ticket + 1, seconds(call.timeout), link_->member(link_->rank()))});
    }
  } catch (...) {
    link_->fail({ErrorKind::timeout, Code::deadline_exceeded, {}});
  }
  // If the deadline has passed the generation has failed, so whoever is before us returns at once.
  turnstile_.wait(ticket, Deadline::never());
  const Turn turn{turnstile_};
  try {
    status = carry_out(call, ticket + 1, deadline);
  } catch (const std::bad_alloc&) {
    status = Status(ErrorKind::system_error, Code::resource_exhausted, {});
    link_->fail(status);
  } catch (...) {
    status = Status::from_current_exception();
    link_->fail(status);
  }
  if (!status.ok()) link_->quiesce();
  return status;
}

Status Executor::carry_out(const Call& call, std::uint64_t sequence, Deadline deadline) {
  if (link_->failed()) return link_->failure();
  last_.planned = nullptr;
  const PlannedCall& planned = planner_.plan(call, link_->access(call.exposure()));

  wire::Descriptor descriptor;
  descriptor.sequence = sequence;
  descriptor.count = call.counts.empty() ? call.count
                                         : std::accumulate(call.counts.begin(), call.counts.end(),
                                                           std::uint64_t{0});
  descriptor.shape_hash = call.shape_hash;
  descriptor.plan_hash = planned.hash;
  descriptor.root = call.root;
  descriptor.to = call.to;
  descriptor.kind = static_cast<std::uint8_t>(call.kind);
  if (call.reduces) descriptor.op = static_cast<std::uint8_t>(call.op);
  if (call.kind != plan::Kind::barrier) descriptor.dtype = static_cast<std::uint8_t>(call.dtype);
  descriptor.group = group_;
  descriptor.name = call.name;

  const Bindings bindings = bind(call, planned.plan);
  recorder_.begin(descriptor, call.here, planned.algorithm->name.data());
  operation_.start(planned.plan, bindings, descriptor, call.exposure());
  const State state = drive(call, descriptor, deadline);
  if (state == State::done && is_repeatable(call, planned)) {
    last_ = {&planned, descriptor, call.count, call.op, call.dtype};
  }
  return close(sequence, state);
}

Bindings Executor::bind(const Call& call, const plan::Plan& plan) {
  Bindings bindings;
  bindings.dtype = call.dtype;
  bindings.op = call.op;
  bindings.divisor = call.op == Op::mean ? planner_.layout().replicas() : 1;
  bindings.inputs = call.exposure().inputs;
  bindings.output = call.exposure().output;
  bindings.scratch = scratch_.reserve(plan.scratch_count * size_of(call.dtype));
  bindings.partial = partial_.reserve(plan.partial_count * size_of(accumulator_of(call.dtype)));
  return bindings;
}

Status Executor::close(std::uint64_t sequence, State state) {
  recorder_.end(sequence,
                state == State::done ? Recorder::Outcome::done : Recorder::Outcome::failed);
  if (state == State::done) return {};
  // Where ranks must agree first, the verdict may still be under way.
  if (!link_->failed()) link_->await_verdict();
  Status failure = link_->failed() ? link_->failure() : own_failure_;
  log_error("rank {}: {}\nlast operations of rank {}:\n{}", link_->member(link_->rank()),
            failure.message(), link_->member(link_->rank()), recorder_.text(kLoggedHistory));
  return failure;
}

void Executor::run_small(Op op, ConstBuffer input, Buffer output, Here here) {
  const std::uint64_t ticket = issue();
  if (turnstile_.is_serving(ticket) && run_again(op, input, output, here, ticket)) return;
  Call call;
  fill_small(call, op, input, output, here);
  raise_if_error(run(call, ticket, Deadline::never()));
}

bool Executor::run_again(Op op, ConstBuffer input, Buffer output, Here here, std::uint64_t ticket) {
  if (last_.planned == nullptr || last_.count != input.count() || last_.op != op ||
      last_.dtype != input.dtype() || link_->failed()) {
    return false;
  }
  static const transport::Exposure nothing;
  wire::Descriptor& descriptor = last_.descriptor;
  descriptor.sequence = ticket + 1;
  if (link_->begin(descriptor, nothing, transport::staging_for(input.bytes())) !=
      transport::kNobody) {
    return false;
  }
  const plan::Plan& plan = last_.planned->plan;
  recorder_.begin(descriptor, here, last_.planned->algorithm->name.data());
  std::memcpy(link_->slot(link_->rank()), input.data(), input.bytes());
  link_->publish(1);
  constexpr std::size_t kCopyAndPublish = 2;
  for (std::size_t i = kCopyAndPublish; i + 1 < plan.code.size(); ++i) {
    const int peer = plan.code[i].peer;
    const auto there = [&] { return link_->reached(peer, 1); };
    if (there() || (link_->spin(there) && there())) continue;
    // It takes longer: the usual way, from here on.
    Call call;
    fill_small(call, op, input, output, here);
    const Bindings bindings = bind(call, plan);
    operation_.resume(plan, bindings, descriptor, call.exposure(), kCopyAndPublish);
    const Status status = close(ticket + 1, drive(call, descriptor, Deadline::never()));
    if (!status.ok()) link_->quiesce();
    turnstile_.pass();
    raise_if_error(status);
    return true;
  }
  link_->expect_slot(input.bytes());
  const plan::Instruction& sum = plan.code.back();
  std::array<kernel::Input, kMostRepeated> inputs;
  std::size_t next = 0;
  for (const plan::Place& place : plan.sources_of(sum)) {
    inputs[next++].data = place.rank == link_->rank() ? input.data() : link_->slot(place.rank);
  }
  const kernel::Target target{output.data()};
  kernel::reduce({.op = op,
                  .dtype = last_.dtype,
                  .inputs = std::span(inputs).first(next),
                  .merges = plan.merges_of(sum),
                  .targets = {&target, 1},
                  .count = last_.count,
                  .weights = {},
                  .divisor = op == Op::mean ? planner_.layout().replicas() : 1.0,
                  .reuse = kernel::Reuse::soon});
  recorder_.end(ticket + 1, Recorder::Outcome::done);
  turnstile_.pass();
  return true;
}

State Executor::drive(const Call& call, const wire::Descriptor& descriptor, Deadline deadline) {
  State state = operation_.poll(*link_);
  if (state != State::pending) return state;

  // The clock is looked at only once a wait has become long.
  std::optional<Time> since;
  Time last_progress{};
  std::uint64_t progress = 0;
  while (state == State::pending) {
    const int peer = operation_.waiting_for();
    const auto moved_on = [&] {
      state = operation_.poll(*link_);
      return state != State::pending || operation_.waiting_for() != peer;
    };
    if (link_->spin(moved_on)) {
      if (state == State::pending && link_->failed()) return State::failed;
      continue;
    }
    const Time now = clock_.now();
    if (!since) since = now;
    if (operation_.progress() != progress || last_progress == Time{}) {
      progress = operation_.progress();
      last_progress = now;
    }
    const Deadline stuck = Deadline::after(last_progress, options_.progress_timeout);
    const Deadline report = Deadline::after(now, options_.stall_report);
    if (link_->wait(peer, moved_on, earlier(earlier(deadline, stuck), report))) {
      if (state == State::pending && link_->failed()) return State::failed;
      continue;
    }
    const Time later = clock_.now();
    if (deadline.passed(later) || (stuck.passed(later) && operation_.progress() == progress)) {
      own_failure_ = timed_out(call, descriptor, later - *since);
      link_->fail(own_failure_);
      return State::failed;
    }
    if (report.passed(later)) report_stall(descriptor, later - *since);
  }
  return state;
}

/// Generation ranks the operation waits for: those that have not arrived, else the peer it is stuck
/// at.
std::vector<int> Executor::awaited() const {
  std::vector<int> ranks = link_->missing();
  if (ranks.empty() && operation_.waiting_for() >= 0) ranks.push_back(operation_.waiting_for());
  for (int& rank : ranks) rank = link_->member(rank);
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

void Executor::report_stall(const wire::Descriptor& descriptor, Duration waited) const {
  log_warning("rank {} has waited {:.1f} s in operation {} ({}) for rank {}",
              link_->member(link_->rank()), seconds(waited), descriptor.sequence,
              wire::describe(descriptor), fmt::join(awaited(), ", "));
}

Status Executor::timed_out(const Call& call, const wire::Descriptor& descriptor,
                           Duration waited) const {
  std::vector<int> ranks = awaited();
  std::string text = fmt::format(
      "operation {} ({}) timed out on rank {} after {:.1f} s waiting for other workers: rank {} "
      "has not "
      "arrived or does not move; called at {}:{}",
      descriptor.sequence, wire::describe(descriptor), link_->member(link_->rank()),
      seconds(waited), fmt::join(ranks, ", "), call.here.file, call.here.line);
  return {ErrorKind::timeout, Code::deadline_exceeded, std::move(text), std::move(ranks)};
}

}  // namespace lockstep::coll
