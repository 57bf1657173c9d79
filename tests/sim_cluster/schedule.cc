#include "tests/sim_cluster/schedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <numeric>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "coll/control.h"
#include "sim/random.h"
#include "transport/memory.h"

namespace lockstep::simulated {
namespace {

using plan::Kind;
using sim::Random;
using std::chrono::milliseconds;

template <class T>
const T& pick(Random& random, const std::vector<T>& from) {
  return from[random.below(from.size())];
}

plan::Layout random_layout(Random& random) {
  const int ranks = 2 + static_cast<int>(random.below(5));
  std::vector<int> replicas;
  std::vector<int> hosts;
  const int per_host = 1 + static_cast<int>(random.below(3));
  for (int rank = 0; rank < ranks; ++rank) {
    replicas.push_back(1 + static_cast<int>(random.below(2)));
    hosts.push_back(rank / per_host);
  }
  return plan::Layout(replicas, hosts);
}

bool is_reduction(Kind kind) {
  return kind == Kind::all_reduce || kind == Kind::reduce || kind == Kind::reduce_scatter;
}

/// An algorithm that serves the request on this transport.
const plan::Algorithm* random_algorithm(Random& random, const Task& task,
                                        const Schedule& schedule) {
  std::vector<const plan::Algorithm*> usable;
  for (const plan::Algorithm& algorithm : plan::algorithms(task.request.kind)) {
    if (algorithm.access != plan::Access::messages && schedule.transport == Transport::stream)
      continue;
    if (!algorithm.refuses(task.request, schedule.layout).empty()) continue;
    const plan::Plan plan = algorithm.make(task.request, schedule.layout, 0);
    if (plan.slot_most * size_of(task.dtype) > transport::Desk::kBytes) continue;
    usable.push_back(&algorithm);
  }
  return pick(random, usable);
}

Task random_task(Random& random, const Schedule& schedule) {
  Task task;
  task.request.kind = static_cast<Kind>(random.below(plan::kKindCount));
  if (random.chance(0.3)) task.request.kind = Kind::all_reduce;
  task.request.count = random.chance(0.1) ? 0 : random.below(200);
  const auto ranks = static_cast<std::uint64_t>(schedule.ranks());
  for (std::uint64_t r = 0; r < ranks; ++r) task.request.counts.push_back(random.below(40));
  task.request.root = static_cast<int>(random.below(ranks));
  task.request.to = static_cast<int>(random.below(ranks));
  task.request.chunk = 1 + random.below(64);
  task.dtype = pick(random, std::vector{DType::float32, DType::int32, DType::bfloat16});
  if (task.request.kind == Kind::barrier) task.dtype = DType::uint8;
  task.op = pick(random, std::vector{Op::sum, Op::sum, Op::mean, Op::max});
  if (task.op == Op::mean && task.dtype == DType::int32) task.op = Op::sum;
  if (!is_reduction(task.request.kind)) task.op = Op::sum;
  if (is_reduction(task.request.kind) && accumulator_of(task.dtype) != task.dtype) {
    task.request.accumulator = plan::Accumulator::wide;
  }
  task.in_place = random.chance(0.4);
  task.values = random.next();
  task.algorithm = random_algorithm(random, task, schedule);
  return task;
}

/// The same calls but for one.
void disagree(Random& random, Schedule& schedule) {
  for (;;) {
    std::vector<Task> tasks = schedule.tasks;
    const std::size_t at = random.below(tasks.size());
    Task& task = tasks[at];
    switch (random.below(6)) {
      case 0:
        task = random_task(random, schedule);
        break;
      case 1:
        task.dtype = task.dtype == DType::int32 ? DType::float32 : DType::int32;
        task.op = Op::sum;
        task.request.accumulator = plan::Accumulator::same;
        task.algorithm = random_algorithm(random, task, schedule);
        break;
      case 2:
        ++task.request.count;
        break;
      case 3:
        task.request.root = (task.request.root + 1) % schedule.ranks();
        break;
      case 4:
        std::swap(task, tasks[random.below(tasks.size())]);
        break;
      case 5:
        tasks.erase(tasks.begin() + static_cast<std::ptrdiff_t>(at));
        break;
    }
    std::size_t first = 0;
    while (first < tasks.size() &&
           wire::fingerprint(descriptor_of(tasks[first], first + 1)) ==
               wire::fingerprint(descriptor_of(schedule.tasks[first], first + 1))) {
      ++first;
    }
    if (first == schedule.tasks.size()) continue;  // no difference that can be seen
    schedule.other_tasks = std::move(tasks);
    schedule.first_difference = first;
    return;
  }
}

}  // namespace

const char* to_string(Fault fault) noexcept {
  constexpr const char* names[kFaultCount] = {"none",       "delay", "choppy",  "short_pause",
                                              "long_pause", "kill",  "silence", "cut",
                                              "half_close", "abort", "mismatch"};
  return names[static_cast<std::size_t>(fault)];
}

wire::Descriptor descriptor_of(const Task& task, std::uint64_t sequence) {
  const plan::Request& request = task.request;
  const Kind kind = request.kind;
  wire::Descriptor d;
  d.sequence = sequence;
  d.kind = static_cast<std::uint8_t>(kind);
  d.plan_hash =
      XXH3_64bits_withSeed(task.algorithm->name.data(), task.algorithm->name.size(), request.chunk);
  if (kind == Kind::barrier) return d;
  d.dtype = static_cast<std::uint8_t>(task.dtype);
  if (is_reduction(kind)) d.op = static_cast<std::uint8_t>(task.op);
  const bool uneven = kind == Kind::all_gather || kind == Kind::reduce_scatter ||
                      kind == Kind::gather || kind == Kind::scatter;
  if (uneven) {
    d.shape_hash =
        XXH3_64bits(request.counts.data(), request.counts.size() * sizeof(std::uint64_t));
  } else {
    d.count = request.count;
  }
  const bool rooted = kind == Kind::reduce || kind == Kind::broadcast || kind == Kind::gather ||
                      kind == Kind::scatter || kind == Kind::send_receive;
  if (rooted) d.root = request.root;
  if (kind == Kind::send_receive) d.to = request.to;
  return d;
}

std::string describe(const Task& task) {
  return fmt::format("{} by {} chunk {}{}", wire::describe(descriptor_of(task, 1)),
                     task.algorithm->name, task.request.chunk, task.in_place ? " in place" : "");
}

Schedule make_schedule(std::uint64_t seed) {
  Random random(seed);
  Schedule schedule;
  schedule.seed = seed;
  schedule.transport = random.chance(0.3) ? Transport::memory : Transport::stream;
  schedule.layout = random_layout(random);
  const std::size_t tasks = 3 + random.below(6);
  for (std::size_t i = 0; i < tasks; ++i) schedule.tasks.push_back(random_task(random, schedule));
  schedule.fault = schedule.transport == Transport::stream
                       ? static_cast<Fault>(random.below(kFaultCount))
                       : pick(random, std::vector{Fault::none, Fault::abort, Fault::mismatch});
  schedule.victim = static_cast<int>(random.below(static_cast<std::uint64_t>(schedule.ranks())));
  schedule.neighbour = pick(random, coll::control_peers(schedule.victim, schedule.ranks()));
  schedule.strikes_at = random.below(static_cast<std::uint64_t>(schedule.ranks()) * tasks * 6);
  schedule.lasts = schedule.fault == Fault::short_pause
                       ? random.up_to(milliseconds(2500))
                       : milliseconds(3600) + random.up_to(milliseconds(3000));
  if (schedule.fault == Fault::mismatch) disagree(random, schedule);
  return schedule;
}

std::string describe(const Schedule& schedule) {
  std::string replicas;
  for (int r = 0; r < schedule.ranks(); ++r) {
    replicas += fmt::format("{}{}", r == 0 ? "" : "+", schedule.layout.replicas(r));
  }
  std::string text = fmt::format(
      "{} ranks ({} replicas) over {}, fault {}", schedule.ranks(), replicas,
      schedule.transport == Transport::stream ? "streams" : "memory", to_string(schedule.fault));
  if (schedule.fault > Fault::choppy) {
    text += fmt::format(" of rank {} after {} polls", schedule.victim, schedule.strikes_at);
  }
  if (breaks_connections(schedule.fault)) {
    text += fmt::format(", towards rank {}", schedule.neighbour);
  }
  for (std::size_t i = 0; i < schedule.tasks.size(); ++i) {
    text += fmt::format("\n  {}: {}", i + 1, describe(schedule.tasks[i]));
  }
  if (schedule.fault == Fault::mismatch) {
    text += fmt::format("\nrank {} asks for:", schedule.victim);
    for (std::size_t i = 0; i < schedule.other_tasks.size(); ++i) {
      text += fmt::format("\n  {}: {}", i + 1, describe(schedule.other_tasks[i]));
    }
  }
  return text;
}

}  // namespace lockstep::simulated
