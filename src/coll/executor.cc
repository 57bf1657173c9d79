#include "coll/executor.h"

#include <fmt/format.h>

#include <algorithm>
#include <new>
#include <numeric>
#include <optional>

#include "base/log.h"
#include "coll/narrowed_call.h"
#include "transport/left_group.h"
#include "transport/own_failure.h"

namespace lockstep::coll {
namespace {

double seconds(Duration duration) { return std::chrono::duration<double>(duration).count(); }

/// Whatever happens, the next operation gets its turn.
struct Turn {
  Turnstile& turnstile;
  ~Turn() { turnstile.pass(); }
};

std::string called_at(const wire::Descriptor& descriptor, Here here) {
  const std::string place = wire::place_of(descriptor, here);
  return place.empty() ? place : "; called" + place;
}

void fill_small(Call& call, Op op, const ConstBuffer& input, const ConstBuffer& output, Here here) {
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

}  // namespace

Executor::Executor(std::unique_ptr<Carrier> carrier, const SessionOptions& options,
                   const GroupSpec& group, std::shared_ptr<Records> records, Deserted deserted,
                   const Clock* clock)
    : carrier_(std::move(carrier)),
      end_(carrier_->end()),
      options_(options),
      group_(static_cast<std::uint32_t>(group.id)),
      records_(std::move(records)),
      recorder_(records_->add(group)),
      deserted_(std::move(deserted)),
      clock_(clock != nullptr ? *clock : real_clock_) {}

Status Executor::run(const Call& call, std::uint64_t ticket, Deadline deadline) {
  const bool in_time = turnstile_.wait(ticket, deadline);
  if (!in_time) {
    end_.fail(not_started(call, ticket + 1));
    // The calls before this one return once the generation has failed.
    if (!turnstile_.wait(ticket, Deadline::after(transport::kVerdictPatience))) {
      end_.settle_alone();
    }
    turnstile_.wait(ticket, Deadline::never());
  }
  const Turn turn{turnstile_};
  Status status;
  try {
    if (!in_time && !retired_) have_verdict();
    status = retired_ ? Status(ErrorKind::invalid_usage, Code::failed_precondition,
                               "the session is closed")
                      : carry_out(call, ticket + 1, deadline);
  } catch (...) {
    status = thrown(ticket + 1);
  }
  if (!status.ok()) end_.quiesce();
  return status;
}

Status Executor::not_started(const Call& call, std::uint64_t sequence) const noexcept {
  try {
    const wire::Descriptor descriptor = describe(call, sequence);
    return {ErrorKind::timeout, Code::deadline_exceeded,
            fmt::format("operation {} ({}) did not start within {:.1f} s: earlier operations of "
                        "rank {} are still under way{}",
                        sequence, wire::describe(descriptor), seconds(call.timeout),
                        end_.member(end_.rank()), called_at(descriptor, call.here))};
  } catch (...) {
    return transport::own_failure(transport::current_failure(), end_.member(end_.rank()));
  }
}

bool Executor::finish(Deadline deadline) noexcept { return turnstile_.wait_until_idle(deadline); }

// After a failure was reported, no operation may begin. It would meet what the failed one has left
// in the link, which lies in the memory of a caller that has thrown.
void Executor::have_verdict() noexcept {
  if (!end_.failed()) end_.await_verdict();
}

bool Executor::retire() noexcept {
  if (!turnstile_.take_if_idle()) return false;
  const Turn turn{turnstile_};
  retired_ = true;
  carrier_->retire();
  return true;
}

Status Executor::thrown(std::uint64_t sequence) noexcept {
  Status why = transport::current_failure();
  if (transport::is_own_shortage(why)) why = transport::own_failure(why, end_.member(end_.rank()));
  recorder_->end(sequence, Recorder::Outcome::failed);
  end_.fail(why);
  have_verdict();
  records_->report(why, *recorder_);
  return why;
}

Status Executor::run_all(const Work::Shared& work) {
  Status status;
  for (const auto& issued : work.calls) {
    Status result = run(issued.call, issued.ticket, issued.deadline);
    if (status.ok()) status = std::move(result);
  }
  return status;
}

wire::Descriptor Executor::describe(const Call& call, std::uint64_t sequence) const {
  wire::Descriptor descriptor;
  descriptor.sequence = sequence;
  descriptor.count = call.counts.empty() ? call.count
                                         : std::accumulate(call.counts.begin(), call.counts.end(),
                                                           std::uint64_t{0});
  descriptor.shape_hash = call.shape_hash;
  descriptor.root = call.root;
  descriptor.to = call.to;
  descriptor.kind = static_cast<std::uint8_t>(call.kind);
  if (call.reduces) descriptor.op = static_cast<std::uint8_t>(call.op);
  if (call.kind != plan::Kind::barrier) descriptor.dtype = static_cast<std::uint8_t>(call.dtype);
  if (call.wire) descriptor.wire = static_cast<std::uint8_t>(*call.wire);
  descriptor.group = group_;
  descriptor.name = call.name;
  descriptor.description = call.description;
  return descriptor;
}

Status Executor::carry_out(const Call& call, std::uint64_t sequence, Deadline deadline) {
  wire::Descriptor descriptor = describe(call, sequence);
  if (end_.failed()) return failure_of(descriptor, call.here, {});
  std::optional<NarrowedCall> narrowed;
  if (call.wire) narrowed.emplace(call, narrowed_);
  const char* algorithm = carrier_->start(narrowed ? narrowed->call() : call, descriptor);
  recorder_->begin(descriptor, call.here, algorithm);
  const State state = drive(call, descriptor, deadline);
  if (narrowed && state == State::done) narrowed->widen();
  return close(descriptor, call.here, state);
}

Status Executor::close(const wire::Descriptor& descriptor, Here here, State state) {
  recorder_->end(descriptor.sequence,
                 state == State::done ? Recorder::Outcome::done : Recorder::Outcome::failed);
  if (state == State::done) return {};
  have_verdict();
  return failure_of(descriptor, here, carrier_->moved());
}

// The cause reads alike on all ranks; where it met this one does not.
Status Executor::failure_of(const wire::Descriptor& descriptor, Here here,
                            const Moved& moved) const {
  Status failure = end_.failure();
  records_->report(failure, *recorder_);
  try {
    return {failure.kind(), failure.code(),
            fmt::format("{}\nrank {} had asked for operation {} ({}){}{}", failure.message(),
                        end_.member(end_.rank()), descriptor.sequence, wire::describe(descriptor),
                        wire::place_of(descriptor, here),
                        moved.total == 0 ? "" : " and moved " + to_text(moved)),
            failure.culprits()};
  } catch (const std::bad_alloc&) {
    return failure;  // the cause is worth more than where it met this rank
  }
}

void Executor::run_small(Op op, const ConstBuffer& input, const Buffer& output, Here here) {
  const std::uint64_t ticket = issue();
  if (turnstile_.is_serving(ticket) && run_again(op, input, output, here, ticket)) return;
  Call call;
  fill_small(call, op, input, output, here);
  raise_if_error(run(call, ticket, Deadline::never()));
}

bool Executor::run_again(Op op, const ConstBuffer& input, const Buffer& output, Here here,
                         std::uint64_t ticket) {
  const Carrier::Again* again = carrier_->begin_again(op, input, output, ticket + 1);
  if (again == nullptr) return false;
  const Turn turn{turnstile_};
  recorder_->begin(again->descriptor, here, again->algorithm);
  Status status;
  try {
    if (carrier_->finish_again(input, output)) {
      recorder_->end(ticket + 1, Recorder::Outcome::done);
      return true;
    }
    Call call;
    fill_small(call, op, input, output, here);
    carrier_->go_on(call);
    status = close(again->descriptor, here, drive(call, again->descriptor, Deadline::never()));
  } catch (...) {
    status = thrown(ticket + 1);
  }
  if (!status.ok()) end_.quiesce();
  raise_if_error(status);
  return true;
}

State Executor::drive(const Call& call, const wire::Descriptor& descriptor, Deadline deadline) {
  State state = carrier_->poll();
  if (state != State::pending) return state;

  // The clock is looked at only once a wait has become long.
  std::optional<LongWait> wait;
  while (state == State::pending) {
    const int peer = carrier_->waiting_for();
    const auto moved_on = [&] {
      state = carrier_->poll();
      return state != State::pending || carrier_->waiting_for() != peer;
    };
    if (!call.background && end_.spin(moved_on)) {
      if (state == State::pending && end_.failed()) return State::failed;
      continue;
    }
    if (!wait) wait.emplace(options_, clock_.now(), carrier_->progress());
    const auto worth_a_look = [&] { return moved_on() || never_comes(peer); };
    if (end_.wait(peer, worth_a_look, earlier(deadline, wait->next_look()))) {
      if (state != State::pending) continue;
      if (end_.failed()) return State::failed;
      // What it did before it left counts, so look once more after having seen it leave.
      if (!never_comes(peer) || moved_on()) continue;
      end_.fail(has_left(peer, descriptor));
      return State::failed;
    }
    const Time now = clock_.now();
    wait->look(now, {carrier_->progress(), carrier_->moved(), awaited()});
    if (deadline.passed(now) || wait->is_stuck(now)) {
      end_.fail(timed_out(call, descriptor, wait->waited(now)));
      return State::failed;
    }
    if (wait->report_is_due(now)) report_stall(descriptor, *wait, now);
  }
  return state;
}

// Who leaves a group leaves its messages first, if it made them: then the link knows better.
bool Executor::never_comes(int peer) const {
  return deserted_ && peer >= 0 && deserted_(peer) && !end_.has_left(peer);
}

Status Executor::has_left(int peer, const wire::Descriptor& descriptor) const {
  return transport::left_group(
      {.peer = end_.member(peer), .rank = end_.member(end_.rank()), .finished_at = 0}, descriptor);
}

/// Generation ranks the operation waits for: those that have not arrived, else the peer it is stuck
/// at.
std::vector<int> Executor::awaited() const {
  std::vector<int> ranks = end_.missing();
  if (ranks.empty() && carrier_->waiting_for() >= 0) ranks.push_back(carrier_->waiting_for());
  for (int& rank : ranks) rank = end_.member(rank);
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

void Executor::report_stall(const wire::Descriptor& descriptor, LongWait& wait, Time now) const {
  log_warning("rank {} has waited {:.1f} s in operation {} ({}) for {}", end_.member(end_.rank()),
              seconds(wait.waited(now)), descriptor.sequence, wire::describe(descriptor),
              wait.report(now));
}

Status Executor::timed_out(const Call& call, const wire::Descriptor& descriptor,
                           Duration waited) const {
  std::vector<int> ranks = awaited();
  std::string text = fmt::format(
      "operation {} ({}) timed out on rank {} after {:.1f} s waiting for other workers: {} not "
      "arrived or {} not move{}",
      descriptor.sequence, wire::describe(descriptor), end_.member(end_.rank()), seconds(waited),
      names_of(ranks) + (ranks.empty() ? " have" : " has"), ranks.empty() ? "do" : "does",
      called_at(descriptor, call.here));
  return {ErrorKind::timeout, Code::deadline_exceeded, std::move(text), std::move(ranks)};
}

}  // namespace lockstep::coll
