#include "tests/sim_cluster/program.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <numeric>
#include <set>

#include "base/gate.h"
#include "lockstep/error.h"

namespace lockstep::simulated {
namespace {

using sim::Random;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr std::size_t kStarted = 3;
/// A call in a generation that has failed answers at once; this is far below a pulse.
constexpr Duration kAtOnce = milliseconds(50);

bool contains(const std::vector<int>& ranks, int rank) {
  return std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
}

void pass_time(Duration duration) {
  Gate().wait([] { return false; }, Deadline::after(MonotonicClock().now(), duration));
}

/// Chooses steps one after another and keeps account of who is still there.
class Writer {
 public:
  Writer(Random& random, int ranks) : random_(random) {
    program_.ranks = ranks;
    std::vector<int> all(static_cast<std::size_t>(ranks));
    std::iota(all.begin(), all.end(), 0);
    program_.divisions.push_back({.parent = 0, .groups = {all}});
    open_ = {0};
    present_ = all;
    timeouts_ = random_.chance(0.2);
  }

  Program write() {
    const std::size_t steps = 4 + random_.below(8);
    const bool some_leave = program_.ranks > 2 && random_.chance(0.35);
    const std::size_t leave_at = some_leave ? 1 + random_.below(steps) : steps;
    for (std::size_t i = 0; i < steps; ++i) {
      if (i == leave_at) leave();
      add_step();
    }
    return std::move(program_);
  }

 private:
  [[nodiscard]] int some_division() { return open_[random_.below(open_.size())]; }

  Step calls(Action action, int division) {
    Step step{.action = action, .division = division};
    step.count = random_.chance(0.1)   ? 0
                 : random_.chance(0.1) ? 2000 + random_.below(20'000)
                                       : 1 + random_.below(60);
    step.values = random_.next();
    step.root = random_.below(64);
    if (timeouts_ && random_.chance(0.5)) {
      step.timeout = milliseconds(200) + random_.up_to(seconds(2));
    }
    return step;
  }

  void add_step() {
    const double choice = static_cast<double>(random_.below(1000)) / 1000;
    if (choice < 0.15) {
      split(some_division());
    } else if (choice < 0.22 && open_.size() > 1) {
      const auto which = 1 + random_.below(open_.size() - 1);
      program_.steps.push_back({.action = Action::close, .division = open_[which]});
      open_.erase(open_.begin() + static_cast<std::ptrdiff_t>(which));
    } else if (choice < 0.30) {
      compute(random_.chance(0.15) && !timeouts_ ? seconds(1) + random_.up_to(seconds(9))
                                                 : milliseconds(20));
    } else if (choice < 0.40) {
      program_.steps.push_back(calls(Action::messages, some_division()));
    } else if (choice < 0.50) {
      program_.steps.push_back(calls(Action::started, some_division()));
    } else {
      const auto kind = random_.chance(0.4) ? Action::all_reduce
                                            : static_cast<Action>(random_.below(kCollectives));
      program_.steps.push_back(calls(kind, some_division()));
    }
  }

  void compute(Duration most) {
    Step step{.action = Action::compute, .ranks = {}, .lasts = random_.up_to(most)};
    for (const int rank : present_) {
      if (random_.chance(0.6)) step.ranks.push_back(rank);
    }
    program_.steps.push_back(step);
  }

  /// Every group in up to three, in any order; `label` says which rank comes where.
  template <class Label>
  int split(int parent, Label&& label) {
    Division made{.parent = parent, .groups = {}};
    const auto groups = program_.divisions[static_cast<std::size_t>(parent)].groups;
    for (const auto& members : groups) {
      std::vector<std::vector<int>> parts(4);
      for (const int rank : members) parts[label(rank)].push_back(rank);
      for (auto& part : parts) {
        if (part.empty()) continue;
        for (std::size_t i = part.size(); i > 1; --i) {
          if (random_.chance(0.3)) std::swap(part[i - 1], part[random_.below(i)]);
        }
        made.groups.push_back(part);
      }
    }
    const int number = static_cast<int>(program_.divisions.size());
    program_.divisions.push_back(made);
    Step step = calls(Action::split, number);
    program_.steps.push_back(step);
    open_.push_back(number);
    return number;
  }
  void split(int parent) {
    const std::uint64_t parts = 1 + random_.below(3);
    split(parent, [&](int) { return random_.below(parts); });
  }

  /// Some leave in good order, and the others go on in groups without them.
  void leave() {
    std::vector<int> leaving;
    for (const int rank : present_) {
      if (leaving.size() + 2 < present_.size() && random_.chance(rank == 0 ? 0.6 : 0.4)) {
        leaving.push_back(rank);
      }
    }
    if (leaving.empty()) leaving.push_back(present_[random_.below(present_.size())]);
    const int apart = split(0, [&](int rank) { return contains(leaving, rank) ? 1U : 0U; });
    Step step{.action = Action::leave, .ranks = leaving};
    step.keeps_session = random_.chance(0.5);
    program_.steps.push_back(step);
    for (const int rank : leaving) std::erase(present_, rank);
    open_ = {apart};
    // What is wrong with somebody who has left may take its time to show.
    if (random_.chance(0.3) && !timeouts_) {
      program_.steps.push_back({.action = Action::compute,
                                .ranks = present_,
                                .lasts = seconds(6) + random_.up_to(seconds(6))});
    }
  }

  Random& random_;
  Program program_;
  std::vector<int> open_;     // divisions whose groups can be used
  std::vector<int> present_;  // ranks that have not left
  bool timeouts_ = false;
};

}  // namespace

const char* to_string(Action action) noexcept {
  constexpr const char* names[] = {"all_reduce",     "reduce",   "broadcast", "all_gather",
                                   "reduce_scatter", "gather",   "scatter",   "all_to_all",
                                   "barrier",        "messages", "started",   "split",
                                   "close",          "compute",  "leave"};
  return names[static_cast<std::size_t>(action)];
}

const std::vector<int>& Division::group_of(int rank) const {
  return *std::find_if(groups.begin(), groups.end(),
                       [&](const auto& members) { return contains(members, rank); });
}

bool Program::has_timeouts() const noexcept {
  return std::any_of(steps.begin(), steps.end(),
                     [](const Step& step) { return step.timeout != Duration{}; });
}

bool Program::has_several_groups() const noexcept {
  return divisions.size() > 1 || std::any_of(steps.begin(), steps.end(), [](const Step& step) {
           return step.action == Action::messages;
         });
}

Duration Program::computes() const noexcept {
  return std::accumulate(steps.begin(), steps.end(), Duration{},
                         [](Duration sum, const Step& step) { return sum + step.lasts; });
}

Program random_program(Random& random, int ranks) { return Writer(random, ranks).write(); }

std::string describe(const Program& program) {
  std::string text;
  for (std::size_t i = 0; i < program.steps.size(); ++i) {
    const Step& step = program.steps[i];
    text += fmt::format("\n  {:>2}: {}", i + 1, to_string(step.action));
    switch (step.action) {
      case Action::compute:
        text += fmt::format(" {:.3f} s on {}", std::chrono::duration<double>(step.lasts).count(),
                            step.ranks);
        break;
      case Action::leave:
        text += fmt::format(" {}{}", step.ranks,
                            step.keeps_session ? ", sessions closed and kept" : "");
        break;
      default:
        text += fmt::format(" in {}",
                            program.divisions[static_cast<std::size_t>(step.division)].groups);
        if (step.action < Action::split) text += fmt::format(", {} elements", step.count);
        if (step.timeout != Duration{}) {
          text +=
              fmt::format(", within {:.3f} s", std::chrono::duration<double>(step.timeout).count());
        }
    }
  }
  return text;
}

void Participant::run(coll::Session world, const std::function<void()>& after_each) {
  sessions_.resize(program_.divisions.size());
  sessions_[0] = std::move(world);
  try {
    for (const Step& step : program_.steps) {
      if (deserts_) leave({.action = Action::leave, .keeps_session = true});
      if (left_) break;
      if (takes_part(step)) perform(step);
      if (!problem_.empty()) break;
      ++steps_;
      after_each();
    }
  } catch (...) {
    buffers_then_ = buffers_;
    throw;
  }
  finished_ = true;
}

bool Participant::takes_part(const Step& step) const {
  if (step.action == Action::compute || step.action == Action::leave)
    return contains(step.ranks, rank_);
  return true;
}

void Participant::perform(const Step& step) {
  buffers_.clear();
  if (step.action == Action::compute) return pass_time(step.lasts);
  if (step.action == Action::leave) return leave(step);
  if (step.action == Action::split) return split(step);
  auto& session = sessions_[static_cast<std::size_t>(step.division)];
  if (step.action == Action::close) return session.reset();
  collective(step, *session,
             program_.divisions[static_cast<std::size_t>(step.division)].group_of(rank_));
}

void Participant::leave(const Step& step) {
  left_ = true;
  keeps_sessions_ = step.keeps_session;
  for (auto& session : sessions_) {
    if (session) session->close();
    if (!step.keeps_session) session.reset();
  }
}

void Participant::split(const Step& step) {
  const Division& made = program_.divisions[static_cast<std::size_t>(step.division)];
  const std::vector<int>& members = made.group_of(rank_);
  const auto color =
      std::find(made.groups.begin(), made.groups.end(), members) - made.groups.begin();
  const auto place = std::find(members.begin(), members.end(), rank_) - members.begin();
  sessions_[static_cast<std::size_t>(step.division)] =
      sessions_[static_cast<std::size_t>(made.parent)]->split(
          {.color = static_cast<int>(color), .key = static_cast<int>(place)},
          {.timeout = step.timeout});
}

Participant::Values& Participant::buffer(std::size_t count) { return buffers_.emplace_back(count); }

Participant::Values Participant::input(const Step& step, int place, std::size_t count) const {
  Random random(step.values + static_cast<std::uint64_t>(place));
  Values values(count);
  for (auto& value : values) value = static_cast<std::int64_t>(random.next() >> 20);
  return values;
}

void Participant::expect(const Values& result, const Values& right, const Step& step) {
  if (result == right || !problem_.empty()) return;
  problem_ = fmt::format("a wrong result of {} in step {}", to_string(step.action),
                         &step - program_.steps.data() + 1);
}

void Participant::collective(const Step& step, coll::Session& group,
                             const std::vector<int>& members) {
  const int size = static_cast<int>(members.size());
  const auto ranks = members.size();
  const int place =
      static_cast<int>(std::find(members.begin(), members.end(), rank_) - members.begin());
  const std::size_t count = step.count;
  const int root = static_cast<int>(step.root % ranks);
  const coll::CallOptions options{.timeout = step.timeout};
  if (group.rank() != place || group.size() != size) {
    problem_ =
        fmt::format("rank {} of {} is {} of {} there", place, size, group.rank(), group.size());
    return;
  }
  const auto mine = [&](std::size_t elements) -> Values& {
    return buffer(0) = input(step, place, elements);
  };
  const auto sum = [&](std::size_t elements, std::uint64_t salt = 0) {
    Step salted = step;
    salted.values += salt;
    Values total(elements);
    for (int member = 0; member < size; ++member) {
      const Values values = input(salted, member, elements);
      for (std::size_t i = 0; i < elements; ++i) total[i] += values[i];
    }
    return total;
  };
  const auto all = [&] {
    Values whole;
    for (int member = 0; member < size; ++member) {
      const Values values = input(step, member, count);
      whole.insert(whole.end(), values.begin(), values.end());
    }
    return whole;
  };
  const auto slice = [&](const Values& whole, int of) {
    const auto first = whole.begin() + static_cast<std::ptrdiff_t>(count) * of;
    return Values(first, first + static_cast<std::ptrdiff_t>(count));
  };
  switch (step.action) {
    case Action::all_reduce: {
      Values& x = mine(count);
      group.all_reduce(Op::sum, std::span(x), options);
      return expect(x, sum(count), step);
    }
    case Action::reduce: {
      Values& x = mine(count);
      Values& result = buffer(place == root ? count : 0);
      group.reduce(Op::sum, std::span(x), std::span(result), coll::Root{root}, options);
      return expect(result, place == root ? sum(count) : Values(), step);
    }
    case Action::broadcast: {
      Values& x = mine(count);
      group.broadcast(std::span(x), coll::Root{root}, options);
      return expect(x, input(step, root, count), step);
    }
    case Action::all_gather: {
      Values& x = mine(count);
      Values& result = buffer(count * ranks);
      group.all_gather(std::span(x), std::span(result), {}, options);
      return expect(result, all(), step);
    }
    case Action::reduce_scatter: {
      Values& x = mine(count * ranks);
      Values& result = buffer(count);
      group.reduce_scatter(Op::sum, std::span(x), std::span(result), {}, options);
      return expect(result, slice(sum(count * ranks), place), step);
    }
    case Action::gather: {
      Values& x = mine(count);
      Values& result = buffer(place == root ? count * ranks : 0);
      group.gather(std::span(x), std::span(result), coll::Root{root}, {}, options);
      return expect(result, place == root ? all() : Values(), step);
    }
    case Action::scatter: {
      Values& x = place == root ? mine(count * ranks) : buffer(0);
      Values& result = buffer(count);
      group.scatter(std::span(x), std::span(result), coll::Root{root}, {}, options);
      return expect(result, slice(input(step, root, count * ranks), place), step);
    }
    case Action::all_to_all: {
      Values& x = mine(count * ranks);
      Values& result = buffer(count * ranks);
      group.all_to_all(std::span(x), std::span(result), options);
      Values right;
      for (int member = 0; member < size; ++member) {
        const Values part = slice(input(step, member, count * ranks), place);
        right.insert(right.end(), part.begin(), part.end());
      }
      return expect(result, right, step);
    }
    case Action::barrier:
      return group.barrier(options);
    case Action::messages: {
      const int other = place ^ 1;
      if (other >= size) return;
      Values& x = mine(count);
      Values& result = buffer(count);
      if (place < other) group.send(std::span(x), coll::To{other}, options);
      group.receive(std::span(result), coll::From{other}, options);
      if (place > other) group.send(std::span(x), coll::To{other}, options);
      return expect(result, input(step, other, count), step);
    }
    case Action::started: {
      std::vector<coll::Work> works;
      for (std::size_t i = 0; i < kStarted; ++i) {
        Step salted = step;
        salted.values += i * 1000;
        Values& x = buffer(0) = input(salted, place, count);
        works.push_back(group.start_all_reduce(Op::sum, std::span(x), options));
      }
      std::exception_ptr failure;
      for (auto& work : works) {  // the buffers are the operations' until each has ended
        try {
          work.wait();
        } catch (const Error&) {
          if (!failure) failure = std::current_exception();
        }
      }
      if (failure) std::rethrow_exception(failure);
      for (std::size_t i = 0; i < kStarted; ++i) expect(buffers_[i], sum(count, i * 1000), step);
      return;
    }
    case Action::split:
    case Action::close:
    case Action::compute:
    case Action::leave:
      return;  // no collectives
  }
}

void Participant::abort(const std::string& reason) noexcept {
  if (!sessions_.empty() && sessions_[0]) sessions_[0]->abort(reason);
}

void Participant::call_again(const Status& why) {
  for (auto& session : sessions_) {
    if (!session || !problem_.empty()) continue;
    const Time before = MonotonicClock().now();
    try {
      Values x(1);
      session->all_reduce(Op::sum, std::span(x));
      problem_ = session->size() == 1 ? "" : "a call after the failure did not fail";
    } catch (const Error& again) {
      if (again.kind() == ErrorKind::invalid_usage) continue;  // closed
      if (again.culprits() != why.culprits()) {
        problem_ = fmt::format("failed with {} {}, and later with {} {}", to_string(why.kind()),
                               why.culprits(), to_string(again.kind()), again.culprits());
      }
    }
    if (MonotonicClock().now() - before > kAtOnce)
      problem_ = "a call after the failure did not fail at once";
  }
}

std::string Participant::at() const {
  if (steps_ >= program_.steps.size()) return "the end";
  const Step& step = program_.steps[steps_];
  return fmt::format("step {}, {}", steps_ + 1, to_string(step.action));
}

}  // namespace lockstep::simulated
