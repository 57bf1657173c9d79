#include "plan/machine.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "plan/form.h"

namespace lockstep::plan {
namespace {

std::size_t at(int index) { return static_cast<std::size_t>(index); }

std::uint64_t begin_of(const Request& request, int rank) {
  return std::accumulate(request.counts.begin(), request.counts.begin() + rank, std::uint64_t{0});
}

// Cells of all buffers together.
constexpr std::uint64_t kMostCells = std::uint64_t{1} << 27;

/// Whether messages that mean nothing by what is in them are a part of it.
bool has_tokens(Kind kind) { return kind == Kind::barrier || kind == Kind::send_receive; }

}  // namespace

Machine::Machine(const Request& request, const Layout& layout, const std::vector<Plan>& plans,
                 const CheckOptions& options)
    : request_(request),
      layout_(layout),
      plans_(plans),
      options_(options),
      n_(layout.ranks()),
      wide_(request.accumulator == Accumulator::wide),
      symbols_(layout.replicas()),
      tree_(symbols_.finish(symbols_.fixed_tree({0, layout.replicas()}))),
      memory_(n_),
      buffers_(at(n_)),
      ranks_(at(n_)),
      channels_(at(n_) * at(n_)) {
  for (Processor& rank : ranks_) {
    rank.clock.resize(at(n_));
    rank.published.resize(at(options_.repetitions));
    rank.starts.resize(at(options_.repetitions));
  }
}

void Machine::lay_out_memory() {
  std::uint64_t total = 0;
  for (int rank = 0; rank < n_; ++rank) {
    const Plan& plan = plans_[at(rank)];
    const std::uint64_t input = input_count(request_, layout_, rank);
    const std::uint64_t output = output_count(request_, layout_, rank);
    const int inputs = input_number(request_, layout_, rank);
    span_ = std::max({span_, input, output});
    total += input * static_cast<std::uint64_t>(inputs) + output + plan.scratch_count +
             plan.partial_count + plan.slot_count * at(options_.slots);
    if (total > kMostCells || span_ * at(options_.repetitions) > UINT32_MAX) {
      fail("too much memory for a check");
      return;
    }
    Buffers& buffers = buffers_[at(rank)];
    for (int i = 0; i < inputs; ++i) buffers.inputs.push_back(memory_.add(input));
    const bool in_place = options_.aliasing == Aliasing::in_place && input > 0 && output > 0;
    buffers.output = in_place ? buffers.inputs.front() : memory_.add(output);
    buffers.scratch = memory_.add(plan.scratch_count);
    buffers.partial = memory_.add(plan.partial_count);
    for (int i = 0; i < options_.slots; ++i) buffers.slots.push_back(memory_.add(plan.slot_count));
  }
}

Verdict Machine::run() {
  lay_out_memory();
  std::vector<int> turns(at(n_));
  std::iota(turns.begin(), turns.end(), 0);
  // A small linear congruence: the order of turns must be the same on every platform.
  std::uint32_t random = options_.seed;
  for (std::size_t i = turns.size(); i > 1; --i) {
    random = random * 1664525U + 1013904223U;
    std::swap(turns[i - 1], turns[(random >> 8) % i]);
  }
  Progress progress = Progress::some;
  while (!failed() && progress == Progress::some) {
    progress = Progress::none;
    for (const int rank : turns) {
      if (advance(rank) == Progress::some) progress = Progress::some;
      if (failed()) break;
    }
  }
  const bool all_done = std::all_of(ranks_.begin(), ranks_.end(), [&](const Processor& p) {
    return p.operation == options_.repetitions;
  });
  if (!failed() && !all_done) fail_deadlock();
  return {.problem = problem_, .order = fixed_ && !failed() ? Order::fixed_tree : Order::any};
}

Machine::Progress Machine::advance(int rank) {
  at_rank_ = rank;
  Progress progress = Progress::none;
  while (!failed() && step(rank)) progress = Progress::some;
  return progress;
}

bool Machine::step(int rank) {
  Processor& self = ranks_[at(rank)];
  if (self.operation == options_.repetitions) return false;
  if (!self.started) {
    start(rank);
    return !failed();
  }
  const Plan& plan = plans_[at(rank)];
  if (self.next == plan.code.size()) return end(rank);

  const Instruction& code = plan.code[self.next];
  ++self.clock[at(rank)];
  switch (code.verb) {
    case Verb::send:
      send(rank, code);
      break;
    case Verb::receive:
      if (!receive(rank, code)) return false;
      break;
    case Verb::drain:
      if (!drain(rank, code.peer)) return false;
      break;
    case Verb::publish:
      self.published[at(self.operation)].push_back({code.stage, self.clock});
      break;
    case Verb::await:
      if (!await(rank, code)) return false;
      break;
    case Verb::reduce:
      reduce(rank, code);
      break;
    case Verb::copy:
      copy(rank, code);
      break;
  }
  if (failed()) return false;
  ++self.next;
  return true;
}

/// The caller fills the inputs and leaves rubbish in the output; the engine's buffers hold nothing
/// of use. Nor does the slot: it may lie anywhere in an earlier one, so nobody may still be at any
/// of it.
void Machine::start(int rank) {
  Processor& self = ranks_[at(rank)];
  self.starts[at(self.operation)] = ++self.clock[at(rank)];
  const Buffers& buffers = buffers_[at(rank)];
  const Plan& plan = plans_[at(rank)];
  const auto fill = [&](std::size_t first, std::uint64_t count, Symbol symbol) {
    for (std::uint64_t i = 0; i < count && !failed(); ++i) {
      write(rank, first + i, {symbol, symbol == 0 ? 0 : element_id(self.operation, i)});
    }
  };
  fill(buffers.output, output_count(request_, layout_, rank), 0);
  const std::uint64_t input = input_count(request_, layout_, rank);
  for (std::size_t i = 0; i < buffers.inputs.size(); ++i) {
    const int leaf = is_reduction(request_.kind) ? layout_.first(rank) + static_cast<int>(i)
                                                 : layout_.first(rank);
    fill(buffers.inputs[i], input, symbols_.leaf(leaf));
  }
  fill(buffers.scratch, plan.scratch_count, 0);
  if (plan.slot_count > 0) {
    fill(buffers.slots[at(self.operation % options_.slots)], plan.slot_count, 0);
  }
  fill(buffers.partial, plan.partial_count, 0);
  self.started = true;
  self.next = 0;
}

/// The operation ends when everything sent has been received; the caller then looks at the output
/// and may write over all of its memory.
bool Machine::end(int rank) {
  Processor& self = ranks_[at(rank)];
  if (self.unreceived > 0) return false;
  ++self.clock[at(rank)];
  for (int peer = 0; peer < n_; ++peer) drain(rank, peer);
  check_result(rank);
  if (!failed()) check_meeting(rank);
  const Buffers& buffers = buffers_[at(rank)];
  const auto scribble = [&](std::size_t first, std::uint64_t count) {
    for (std::uint64_t i = 0; i < count && !failed(); ++i) write(rank, first + i, {});
  };
  scribble(buffers.output, output_count(request_, layout_, rank));
  for (const std::size_t input : buffers.inputs) {
    scribble(input, input_count(request_, layout_, rank));
  }
  if (failed()) return false;
  self.started = false;
  ++self.operation;
  return true;
}

void Machine::send(int rank, const Instruction& code) {
  Processor& self = ranks_[at(rank)];
  const Place& source = plans_[at(rank)].sources_of(code).front();
  channel(rank, code.peer)
      .queue.push_back({.cell = cell_of(rank, source),
                        .count = code.count,
                        .operation = self.operation,
                        .instruction = self.next,
                        .partial = source.buffer == Buffer::partial,
                        .sent = self.clock});
  ++self.unreceived;
}

bool Machine::receive(int rank, const Instruction& code) {
  Processor& self = ranks_[at(rank)];
  Channel& from = channel(code.peer, rank);
  if (from.queue.empty()) return false;
  const Message message = std::move(from.queue.front());
  from.queue.pop_front();
  const auto sender = [&] {
    return fmt::format("rank {}, {}", code.peer,
                       describe(plans_[at(code.peer)], message.instruction));
  };
  if (message.operation != self.operation) {
    fail(fmt::format("receives what {} sent in operation {}", sender(), message.operation));
    return false;
  }
  if (message.count != code.count) {
    fail(fmt::format("does not fit {}", sender()));
    return false;
  }
  const Place& target = plans_[at(rank)].targets_of(code).front();
  if (wide_ && message.partial != (target.buffer == Buffer::partial)) {
    fail(fmt::format("mixes values and partial sums with {}", sender()));
    return false;
  }
  join(self.clock, message.sent);
  const std::size_t cell = cell_of(rank, target);
  for (std::uint64_t i = 0; i < code.count && !failed(); ++i) {
    // The sender's memory is read at any time between the send and this receive: a write since the
    // send is a race even if it happened first here.
    if (!memory_.may_read(message.cell + i, message.sent)) {
      fail(fmt::format("{}: element {} was written by rank {} while its message was on its way",
                       sender(), i, memory_.writer(message.cell + i)));
    } else if (memory_.value(message.cell + i).symbol == 0 && !has_tokens(request_.kind)) {
      fail(fmt::format("{}: element {} was never written", sender(), i));
    } else {
      memory_.note_read(message.cell + i, now(rank));
      write(rank, cell + i, memory_.value(message.cell + i));
    }
  }
  from.undrained.push_back({message.cell, message.count, now(rank)});
  --ranks_[at(code.peer)].unreceived;
  return !failed();
}

bool Machine::drain(int rank, int peer) {
  Channel& to = channel(rank, peer);
  if (!to.queue.empty()) return false;
  for (const Received& message : to.undrained) {
    for (std::uint64_t i = 0; i < message.count; ++i) {
      memory_.move_read(message.cell + i, message.by, now(rank));
    }
  }
  to.undrained.clear();
  return true;
}

bool Machine::await(int rank, const Instruction& code) {
  Processor& self = ranks_[at(rank)];
  for (const Published& published : ranks_[at(code.peer)].published[at(self.operation)]) {
    if (published.stage >= code.stage) {
      join(self.clock, published.clock);
      return true;
    }
  }
  return false;
}

void Machine::reduce(int rank, const Instruction& code) {
  const Plan& plan = plans_[at(rank)];
  const auto sources = plan.sources_of(code);
  const auto targets = plan.targets_of(code);
  const auto program = plan.merges_of(code);
  std::vector<std::size_t> from;
  from.reserve(sources.size());
  for (const Place& source : sources) from.push_back(cell_of(rank, source));
  std::vector<std::size_t> to;
  to.reserve(targets.size());
  for (const Place& target : targets) to.push_back(cell_of(rank, target));

  std::vector<Symbol> previous(sources.size());
  std::vector<Symbol> stack;
  Symbol result = 0;
  for (std::uint64_t e = 0; e < code.count; ++e) {
    bool same = true;
    const std::uint32_t element = memory_.value(from.front() + e).element;
    for (std::size_t i = 0; i < from.size(); ++i) {
      const std::size_t cell = from[i] + e;
      read(rank, cell);
      const Value& value = memory_.value(cell);
      if (value.symbol == 0) {
        fail(fmt::format("source {}, element {} was never written", i, e));
      } else if (value.element != element) {
        fail(fmt::format("source {}, element {} belongs to another element", i, e));
      } else if (symbols_.is_finished(value.symbol)) {
        fail(fmt::format("source {}, element {} is finished: {}", i, e,
                         symbols_.text(value.symbol)));
      }
      if (failed()) return;
      same = same && value.symbol == previous[i];
      previous[i] = value.symbol;
    }
    if (!same) {
      // Neighbouring elements mostly have the same history: evaluate only where it changes.
      for (std::size_t i = 0; i < from.size(); ++i) {
        stack.push_back(previous[i]);
        for (int m = 0; m < program[i]; ++m) {
          const Symbol right = stack.back();
          stack.pop_back();
          stack.back() = symbols_.merge(stack.back(), right);
        }
      }
      result = stack.back();
      stack.pop_back();
      if (code.finish) result = symbols_.finish(result);
      for (const Place& target : targets) check_stored(code, target, result);
    }
    for (const std::size_t cell : to) {
      if (!failed()) write(rank, cell + e, {result, element});
    }
    if (failed()) return;
  }
}

/// With a wide accumulator, values are rounded: a partial sum stored as a value has lost bits.
void Machine::check_stored(const Instruction& code, const Place& target, Symbol symbol) {
  const bool partial = target.buffer == Buffer::partial;
  if (code.finish && partial) {
    fail("stores a finished value as a partial sum");
  } else if (wide_ && !partial && !code.finish && !symbols_.is_leaf(symbol)) {
    fail(fmt::format("stores the partial sum {} as a rounded value", symbols_.text(symbol)));
  }
}

void Machine::copy(int rank, const Instruction& code) {
  const Plan& plan = plans_[at(rank)];
  const Place& source = plan.sources_of(code).front();
  const std::size_t from = cell_of(rank, source);
  for (const Place& target : plan.targets_of(code)) {
    const std::size_t to = cell_of(rank, target);
    if (to == from) continue;  // onto itself: nothing happens
    if (wide_ && (source.buffer == Buffer::partial) != (target.buffer == Buffer::partial)) {
      fail("copies between values and partial sums");
      return;
    }
    for (std::uint64_t e = 0; e < code.count; ++e) {
      read(rank, from + e);
      if (!failed() && memory_.value(from + e).symbol == 0) {
        fail(fmt::format("element {} was never written", e));
      }
      if (!failed()) write(rank, to + e, memory_.value(from + e));
      if (failed()) return;
    }
  }
}

void Machine::read(int rank, std::size_t cell) {
  if (memory_.may_read(cell, ranks_[at(rank)].clock)) {
    memory_.note_read(cell, now(rank));
  } else {
    fail(fmt::format("reads memory that rank {} writes at the same time", memory_.writer(cell)));
  }
}

void Machine::write(int rank, std::size_t cell, Value value) {
  int culprit = -1;
  if (memory_.may_write(cell, ranks_[at(rank)].clock, culprit)) {
    memory_.write(cell, value, now(rank));
  } else {
    fail(fmt::format("writes memory that rank {} uses at the same time", culprit));
  }
}

void Machine::check_result(int rank) {
  const std::uint64_t count = output_count(request_, layout_, rank);
  const Buffers& buffers = buffers_[at(rank)];
  const std::uint64_t begin = request_.kind == Kind::reduce_scatter ? begin_of(request_, rank) : 0;
  for (std::uint64_t i = 0; i < count && !failed(); ++i) {
    read(rank, buffers.output + i);
    if (failed()) return;
    const Value& found = memory_.value(buffers.output + i);
    if (found.symbol == 0) {
      fail(fmt::format("output element {} was never written", i));
    } else if (is_reduction(request_.kind)) {
      check_sum(rank, i, found, begin + i);
    } else {
      check_moved(rank, i, found);
    }
  }
}

void Machine::check_sum(int rank, std::uint64_t element, const Value& found,
                        std::uint64_t expected) {
  if (found.element != element_id(ranks_[at(rank)].operation, expected)) {
    fail(fmt::format("output element {} is the sum of another element", element));
    return;
  }
  if (!symbols_.is_finished(found.symbol)) {
    fail(
        fmt::format("output element {} is not finished: {}", element, symbols_.text(found.symbol)));
    return;
  }
  if (found.symbol == tree_) {
    // The common case, known to be complete.
  } else if (symbols_.is_complete(found.symbol)) {
    fixed_ = false;
  } else {
    fail(fmt::format("output element {} is not the sum of all replicas: {}", element,
                     symbols_.text(found.symbol)));
    return;
  }
  if (request_.kind != Kind::all_reduce) return;
  if (agreed_.empty()) agreed_.resize(request_.count);
  Symbol& agreed = agreed_[element];
  if (agreed == 0) agreed = found.symbol;
  if (agreed != found.symbol) {
    fail(fmt::format("output element {} is {} but {} on another rank", element,
                     symbols_.text(found.symbol), symbols_.text(agreed)));
  }
}

void Machine::check_moved(int rank, std::uint64_t element, const Value& found) {
  int from = request_.root;
  std::uint64_t index = element;
  switch (request_.kind) {
    case Kind::all_gather:
    case Kind::gather:
      for (from = 0; index >= request_.counts[at(from)]; ++from) index -= request_.counts[at(from)];
      break;
    case Kind::scatter:
      index += begin_of(request_, rank);
      break;
    case Kind::all_to_all:
      from = static_cast<int>(element / request_.count);
      index = element % request_.count + static_cast<std::uint64_t>(rank) * request_.count;
      break;
    default:
      break;
  }
  const Value expected{symbols_.leaf(layout_.first(from)),
                       element_id(ranks_[at(rank)].operation, index)};
  if (found != expected) {
    fail(fmt::format("output element {} is not element {} of rank {}", element, index, from));
  }
}

void Machine::check_meeting(int rank) {
  const Processor& self = ranks_[at(rank)];
  for (int peer = 0; peer < n_; ++peer) {
    const bool sends = request_.kind == Kind::send_receive && rank == request_.root;
    if (request_.kind != Kind::barrier && !(sends && peer == request_.to)) continue;
    const std::uint32_t start = ranks_[at(peer)].starts[at(self.operation)];
    if (start == 0 || self.clock[at(peer)] < start) {
      fail(fmt::format("leaves the {} without knowing that rank {} has entered",
                       to_string(request_.kind), peer));
      return;
    }
  }
}

void Machine::fail(const std::string& what) {
  if (failed()) return;
  if (at_rank_ < 0) {
    problem_ = what;
    return;
  }
  const Processor& self = ranks_[at(at_rank_)];
  const Plan& plan = plans_[at(at_rank_)];
  std::string where = "end";
  if (!self.started) {
    where = "start";
  } else if (self.next < plan.code.size()) {
    where = describe(plan, self.next);
  }
  problem_ = fmt::format("rank {}, operation {}, {}: {}", at_rank_, self.operation, where, what);
}

void Machine::fail_deadlock() {
  std::string text = "deadlock:";
  for (int rank = 0; rank < n_; ++rank) {
    if (ranks_[at(rank)].operation < options_.repetitions) text += waiting_for(rank);
  }
  problem_ = text;
}

std::string Machine::waiting_for(int rank) const {
  const Processor& self = ranks_[at(rank)];
  const Plan& plan = plans_[at(rank)];
  if (self.next < plan.code.size()) {
    return fmt::format(" rank {} waits for rank {} in operation {} at {};", rank,
                       plan.code[self.next].peer, self.operation, describe(plan, self.next));
  }
  std::string text;
  for (int peer = 0; peer < n_; ++peer) {
    const Channel& to = channels_[at(rank) * at(n_) + at(peer)];
    if (to.queue.empty()) continue;
    text += fmt::format(" rank {} waits at the end of operation {} for rank {} to receive {};",
                        rank, self.operation, peer, describe(plan, to.queue.front().instruction));
  }
  return text;
}

std::size_t Machine::cell_of(int rank, const Place& place) const {
  const Buffers& buffers = buffers_[at(place.rank)];
  switch (place.buffer) {
    case Buffer::input:
      return buffers.inputs[at(place.index)] + place.offset;
    case Buffer::output:
      return buffers.output + place.offset;
    case Buffer::scratch:
      return buffers.scratch + place.offset;
    case Buffer::partial:
      return buffers.partial + place.offset;
    case Buffer::slot:
      break;
  }
  const int turn = ranks_[at(rank)].operation % options_.slots;
  return buffers.slots[at(turn)] + place.offset;
}

Epoch Machine::now(int rank) const { return {rank, ranks_[at(rank)].clock[at(rank)]}; }

/// Successive operations have different elements, so that what is left of one is seen as such.
std::uint32_t Machine::element_id(int operation, std::uint64_t element) const {
  return static_cast<std::uint32_t>(static_cast<std::uint64_t>(operation) * span_ + element);
}

Machine::Channel& Machine::channel(int from, int to) {
  return channels_[at(from) * at(n_) + at(to)];
}

}  // namespace lockstep::plan
