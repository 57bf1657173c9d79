#include "coll/session_impl.h"

#include <fmt/format.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <atomic>

#include "base/log.h"
#include "coll/engines.h"
#include "coll/preferences.h"
#include "kernel/reduce.h"

namespace lockstep::coll {
namespace {

/// An id for a group derived from `parent` that every member computes alike.
std::uint64_t derived_id(std::uint64_t parent, std::uint64_t purpose, std::uint64_t a,
                         std::uint64_t b) {
  const std::uint64_t words[] = {parent, purpose, a, b};
  return XXH3_64bits(words, sizeof(words));
}
constexpr std::uint64_t kSplit = 1;
constexpr std::uint64_t kMessages = 2;

}  // namespace

void check_session_options(const SessionOptions& options) {
  if (options.replicas < 1) {
    throw InvalidUsage(fmt::format("replicas is {}; a rank has 1 or more", options.replicas));
  }
  if (options.progress_timeout.count() <= 0 || options.stall_report.count() <= 0) {
    throw InvalidUsage("progress_timeout and stall_report must be positive");
  }
  preferences_of(options);
  if (options.engine == Engine::mpi || options.engine == Engine::nccl) {
    static std::atomic<bool> said = false;
    if (!said.exchange(true)) {
      log_warning("the {} engine {}: the host's own collectives are used",
                  options.engine == Engine::mpi ? "mpi" : "nccl",
                  engine_of(options.engine) == nullptr
                      ? "is not built"
                      : "connects processes, not the threads of one");
    }
  }
}

Session::Impl::Impl(std::shared_ptr<transport::Generation> generation, MakeCarrier make_carrier,
                    GroupSpec spec, int rank, const SessionOptions& options,
                    std::shared_ptr<Membership> membership, Executor::Deserted deserted)
    : generation_(std::move(generation)),
      make_carrier_(std::move(make_carrier)),
      spec_(std::move(spec)),
      layout_(spec_.replicas, spec_.hosts),
      rank_(rank),
      made_in_(fork_era()),
      single_(spec_.replicas[static_cast<std::size_t>(rank)] == 1),
      options_(options),
      records_(membership ? membership->records : std::make_shared<Records>(spec_.members[rank])),
      executor_(make_carrier_(spec_, rank, options), options, spec_, records_, std::move(deserted)),
      membership_(membership
                      ? std::move(membership)
                      : std::make_shared<Membership>(generation_, spec_.members[rank], records_)) {}

Session::Impl::~Impl() { close(); }

bool Session::Impl::is_small(Op op, const Inputs& inputs, const Buffer& output,
                             const CallOptions& options) const noexcept {
  constexpr std::size_t kMostBytes = 8192;
  if (!is_usable() || !single_ || inputs.list().size() != 1) return false;
  const ConstBuffer& input = inputs.list()[0];
  const auto* from = static_cast<const std::byte*>(input.data());
  const auto* to = static_cast<const std::byte*>(output.data());
  const std::size_t bytes = input.bytes();
  return bytes > 0 && bytes <= kMostBytes && input.count() == output.count() &&
         input.dtype() == output.dtype() && from != nullptr && to != nullptr &&
         (from == to || from + bytes <= to || to + bytes <= from) && options.name.empty() &&
         options.description.empty() && options.timeout.count() == 0 &&
         options.order == SumOrder::fixed_tree && options.shape.empty() &&
         options.wire == WireType::same && kernel::supports(op, input.dtype());
}

void Session::Impl::check_usable() const {
  lockstep::check_process(made_in_);
  if (closed_.load(std::memory_order_relaxed)) {
    throw InvalidUsage("the session is closed", Code::failed_precondition);
  }
}

void Session::Impl::seal(Work::Shared& work) {
  for (auto& issued : work.calls) {
    issued.call.seal();
    // One deadline for all calls of a batch.
    issued.deadline =
        &issued == &work.calls.front() ? issued.call.deadline() : work.calls.front().deadline;
  }
}

void Session::Impl::issue(Work::Shared& work) {
  if (closed_) throw InvalidUsage("the session is closed", Code::failed_precondition);
  for (auto& issued : work.calls) issued.ticket = executor_.issue();
}

Work Session::Impl::submit(std::shared_ptr<Work::Shared> work) {
  check_usable();
  work->rank = spec_.members[rank_];
  seal(*work);
  const MutexLock lock(mutex_);
  if (!pump_ && !closed_)
    pump_ = std::make_unique<Pump>(executor_, fmt::format("ls-pump-{}", spec_.members[rank_]));
  // A ticket that is taken must be passed: what needs memory comes before.
  Pump::Queue queued = {work};
  // Tickets and queue positions are taken under one lock, so the pump meets its tickets in order.
  issue(*work);
  pump_->push(std::move(queued));
  return Work(std::move(work));
}

void Session::Impl::carry_out(Work::Shared& work) {
  check_usable();
  seal(work);
  {
    const MutexLock lock(mutex_);
    issue(work);
  }
  raise_if_error(executor_.run_all(work));
}

Session::Impl& Session::Impl::messages(int from, int to) {
  const MutexLock lock(mutex_);
  check_usable();
  const auto found = messages_.find({from, to});
  if (found != messages_.end()) return *found->second;  // never null: close() closes all
  GroupSpec spec;
  spec.purpose = Purpose::messages;
  spec.parent = spec_.id;
  spec.id = derived_id(spec_.id, kMessages, static_cast<std::uint64_t>(from),
                       static_cast<std::uint64_t>(to));
  for (const int rank : {from, to}) {
    spec.members.push_back(spec_.members[rank]);
    spec.replicas.push_back(1);
    spec.hosts.push_back(spec_.hosts[rank]);
  }
  const auto deserted = [this, from, to](int rank) {
    return executor_.end().has_left(rank == 0 ? from : to);
  };
  auto pair = std::make_unique<Impl>(generation_, make_carrier_, std::move(spec),
                                     rank_ == from ? 0 : 1, options_, membership_, deserted);
  return *messages_.emplace(std::pair(from, to), std::move(pair)).first->second;
}

std::shared_ptr<Session::Impl> Session::Impl::subgroup(const std::vector<std::int64_t>& colors,
                                                       const std::vector<std::int64_t>& keys) {
  std::vector<int> ranks;
  for (int rank = 0; rank < size(); ++rank) {
    if (colors[rank] == colors[rank_]) ranks.push_back(rank);
  }
  std::stable_sort(ranks.begin(), ranks.end(), [&](int a, int b) { return keys[a] < keys[b]; });
  GroupSpec spec;
  spec.parent = spec_.id;
  spec.id = derived_id(spec_.id, kSplit, ++splits_, static_cast<std::uint64_t>(colors[rank_]));
  int position = 0;
  for (const int rank : ranks) {
    if (rank == rank_) position = static_cast<int>(spec.members.size());
    spec.members.push_back(spec_.members[rank]);
    spec.replicas.push_back(spec_.replicas[rank]);
    spec.hosts.push_back(spec_.hosts[rank]);
  }
  const MutexLock lock(mutex_);
  check_usable();
  return std::make_shared<Impl>(generation_, make_carrier_, std::move(spec), position, options_,
                                membership_);
}

void Session::Impl::close() noexcept {
  {
    const MutexLock lock(mutex_);
    if (closed_.exchange(true)) return;
  }
  if (const auto unfinished = executor_.outstanding(); unfinished > 0) {
    try {
      generation_->fail({ErrorKind::cancelled,
                         Code::cancelled,
                         fmt::format("rank {} closed its session with {} operation(s) unfinished",
                                     spec_.members[rank_], unfinished),
                         {spec_.members[rank_]}});
    } catch (...) {
      generation_->fail(transport::own_failure(transport::out_of_memory(), spec_.members[rank_]));
    }
    // The other ranks may not answer, and closing does not wait for them.
    constexpr auto kMoment = std::chrono::milliseconds(500);
    if (!executor_.finish(Deadline::after(kMoment))) executor_.end().settle_alone();
  }
  std::unique_ptr<Pump> pump;
  std::shared_ptr<Membership> membership;
  {
    const MutexLock lock(mutex_);
    membership.swap(membership_);
    ended_messages_.swap(messages_);
    pump.swap(pump_);
  }
  for (const auto& [ranks, pair] : ended_messages_) pair->close();
  pump.reset();
  executor_.end().leave();
  // Messages ask the group who has left it.
  const bool over = std::all_of(ended_messages_.begin(), ended_messages_.end(),
                                [](const auto& each) { return each.second->retired_; });
  retired_ = over && executor_.retire();
  membership.reset();
}

}  // namespace lockstep::coll
