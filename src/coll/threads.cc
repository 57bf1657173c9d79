#include "lockstep/coll/threads.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <map>
#include <optional>

#include "base/log.h"
#include "base/mutex.h"
#include "base/printable.h"
#include "base/thread.h"
#include "coll/generation.h"
#include "coll/plan_carrier.h"
#include "coll/session_impl.h"
#include "plan/select.h"
#include "transport/memory.h"
#include "transport/own_failure.h"

namespace lockstep::coll {
namespace {

/// One group while it forms: who is there, and what became of it.
struct Gathering {
  int size = 0;
  bool by_member = false;
  struct Guest {
    int replicas = 1;
    int host = 0;
  };
  std::map<int, Guest> by_rank;
  std::map<std::string, Guest> by_name;
  std::shared_ptr<transport::MemoryFabric> fabric;  // once complete
  Status error;                                     // sticky

  [[nodiscard]] int present() const {
    return static_cast<int>(by_member ? by_name.size() : by_rank.size());
  }
  [[nodiscard]] bool settled() const { return fabric || !error.ok(); }
};

Status wrong(Code code, std::string text) {
  const ErrorKind kind = code == Code::internal ? ErrorKind::internal : ErrorKind::invalid_usage;
  return {kind, code, std::move(text)};
}

/// Adds the seat to the gathering; an error that concerns everybody is left in gathering.error.
Status sit_down(Gathering& gathering, const Hub::Seat& seat) {
  const bool by_member = !seat.member.empty();
  if (gathering.present() == 0 && gathering.error.ok()) {
    gathering.size = seat.size;
    gathering.by_member = by_member;
  }
  if (!gathering.error.ok()) return gathering.error;
  if (gathering.size != seat.size) {
    gathering.error = wrong(
        Code::internal, fmt::format("group \"{}\": rank {} gave size {} but that group has size {}",
                                    seat.group, by_member ? seat.member : std::to_string(seat.rank),
                                    seat.size, gathering.size));
    return gathering.error;
  }
  if (gathering.by_member != by_member) {
    return wrong(Code::invalid_argument,
                 fmt::format("group \"{}\": some join by rank, others by member name", seat.group));
  }
  const bool taken =
      by_member ? gathering.by_name.count(seat.member) > 0 : gathering.by_rank.count(seat.rank) > 0;
  if (taken) {
    return wrong(
        Code::invalid_argument,
        fmt::format("group \"{}\": {} has joined already", seat.group,
                    by_member ? "member " + seat.member : fmt::format("rank {}", seat.rank)));
  }
  const Gathering::Guest guest{seat.options.replicas, seat.host};
  if (by_member) {
    gathering.by_name.emplace(seat.member, guest);
  } else {
    gathering.by_rank.emplace(seat.rank, guest);
  }
  if (gathering.present() < gathering.size) return {};
  for (const auto& [_, each] : gathering.by_name) {
    gathering.by_rank.emplace(static_cast<int>(gathering.by_rank.size()), each);
  }
  gathering.fabric = std::make_shared<transport::MemoryFabric>(gathering.size, ++last_generation);
  return {};
}

std::string absent(const Gathering& gathering) {
  if (gathering.by_member)
    return fmt::format("{} of {} joined", gathering.present(), gathering.size);
  std::vector<int> ranks;
  for (int rank = 0; rank < gathering.size; ++rank) {
    if (gathering.by_rank.count(rank) == 0) ranks.push_back(rank);
  }
  return fmt::format("rank {} missing, {} of {} joined", fmt::join(ranks, ", "),
                     gathering.present(), gathering.size);
}

void check_seat(const Hub::Seat& seat) {
  if (seat.size < 1)
    throw InvalidUsage(fmt::format("group size is {}; it must be 1 or more", seat.size));
  if (seat.member.empty() && (seat.rank < 0 || seat.rank >= seat.size)) {
    throw InvalidUsage(fmt::format("rank is {}; a group of {} has ranks 0 to {}", seat.rank,
                                   seat.size, seat.size - 1));
  }
  check_session_options(seat.options);
}

}  // namespace

struct Hub::Shared {
  Gate gate;
  Mutex mutex;
  std::map<std::string, std::shared_ptr<Gathering>> gatherings GUARDED_BY(mutex);
  Status aborted GUARDED_BY(mutex);

  bool settled(const Gathering& gathering) {
    const MutexLock lock(mutex);
    return gathering.settled() || !aborted.ok();
  }
};

Hub::Hub() : shared_(std::make_shared<Shared>()) {}

Session Hub::join(const Seat& seat) {
  return transport::naming_shortages(seat.rank, [&] { return take_seat(seat); });
}

Session Hub::take_seat(const Seat& seat) {
  check_seat(seat);
  std::shared_ptr<Gathering> gathering;
  {
    const MutexLock lock(shared_->mutex);
    raise_if_error(shared_->aborted);
    auto& place = shared_->gatherings[seat.group];
    // A group that is complete, or was given up, is past: whoever comes now forms the next
    // generation.
    if (!place || place->fabric || place->error.kind() == ErrorKind::timeout)
      place = std::make_shared<Gathering>();
    gathering = place;
    const Status refused = sit_down(*gathering, seat);
    if (!refused.ok() && gathering->error.ok()) raise(refused);
  }
  shared_->gate.notify();

  const bool in_time = shared_->gate.wait([&] { return shared_->settled(*gathering); },
                                          Deadline::after(seat.timeout));
  GroupSpec spec;
  int rank = seat.rank;
  {
    const MutexLock lock(shared_->mutex);
    if (!in_time && !gathering->settled()) {
      gathering->error = {
          ErrorKind::timeout, Code::deadline_exceeded,
          fmt::format("group \"{}\" timed out waiting for other workers after {:.1f} s: {}",
                      seat.group, std::chrono::duration<double>(seat.timeout).count(),
                      absent(*gathering))};
      shared_->gate.notify();
    }
    if (!gathering->fabric) raise(gathering->error.ok() ? shared_->aborted : gathering->error);
    if (!seat.member.empty()) {
      rank = static_cast<int>(
          std::distance(gathering->by_name.begin(), gathering->by_name.find(seat.member)));
    }
    for (const auto& [member, guest] : gathering->by_rank) {
      spec.members.push_back(member);
      spec.replicas.push_back(guest.replicas);
      spec.hosts.push_back(guest.host);
    }
  }
  try {
    return Session(std::make_shared<Session::Impl>(
        gathering->fabric, carriers_over(gathering->fabric), std::move(spec), rank, seat.options));
  } catch (...) {
    gathering->fabric->leave(rank);  // the others have joined and would wait for this rank
    throw;
  }
}

void Hub::abort(const std::string& reason) {
  {
    const MutexLock lock(shared_->mutex);
    if (shared_->aborted.ok()) {
      shared_->aborted = {ErrorKind::cancelled, Code::cancelled,
                          fmt::format("joining was aborted: {}", one_line(reason))};
    }
  }
  shared_->gate.notify();
}

void run_ranks(int ranks, const std::function<void(Session&)>& fn, const SessionOptions& options) {
  if (ranks < 1) throw InvalidUsage(fmt::format("{} ranks: a group has at least one", ranks));
  Hub hub;
  Mutex mutex;
  std::exception_ptr first;
  const auto body = [&](int rank) {
    std::optional<Session> session;
    try {
      session.emplace(hub.join({.size = ranks, .rank = rank, .options = options}));
      fn(*session);
    } catch (...) {
      const Status why = Status::from_current_exception();
      {
        const MutexLock lock(mutex);
        if (!first) first = std::current_exception();
      }
      // Ends the others' waits; ignored if their failure is what we are passing on.
      if (session) {
        session->abort(why.message());
      } else {
        hub.abort(why.message());
      }
    }
  };
  {
    std::vector<std::jthread> threads;
    try {
      for (int rank = 0; rank < ranks; ++rank) {
        threads.push_back(start_thread(
            fmt::format("ls-rank-{}", rank), [&, rank](const std::stop_token&) { body(rank); },
            [](const Status& why) { log_error("a rank's thread ended with {}", why.message()); }));
      }
    } catch (...) {
      hub.abort("not every rank's thread could be started");
      throw;
    }
  }
  if (first) std::rethrow_exception(first);
}

}  // namespace lockstep::coll
