#include "coll/presence.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "base/log.h"
#include "base/thread.h"
#include "coll/admission.h"
#include "coll/farewell.h"
#include "coll/meeting.h"
#include "transport/own_failure.h"

namespace lockstep::coll {
namespace {

/// Many peers are read together, so that their pulses do not wake the thread one by one.
constexpr int kFewPeers = 16;
constexpr Duration kPausePerPeer = std::chrono::microseconds(80);
constexpr Duration kLongestPause = std::chrono::milliseconds(20);

/// Of ranks that this one lacks as control peers.
constexpr Duration kCallAgain = std::chrono::milliseconds(50);
constexpr Duration kLookAgain = std::chrono::milliseconds(500);
constexpr Duration kLookForAnswers = std::chrono::milliseconds(5);

std::vector<sys::Connection*> borrowed(
    const std::vector<std::unique_ptr<sys::Connection>>& connections) {
  std::vector<sys::Connection*> pointers;
  pointers.reserve(connections.size());
  for (const auto& connection : connections) pointers.push_back(connection.get());
  return pointers;
}

/// "rank 2 (pid 4711 on node7) at 10.0.0.7:4000", by rank.
std::vector<std::string> names(const Roster& roster) {
  std::vector<std::string> names;
  for (const wire::Hello& member : roster.members) {
    names.push_back(fmt::format("{} at {}", wire::describe(member), member.address_text()));
  }
  return names;
}

}  // namespace

Presence::Presence(Setup setup)
    : roster_(std::move(setup.roster)),
      dead_after_(setup.timing.dead),
      last_word_(setup.last_word),
      wire_(std::move(setup.wire)),
      check_(setup.check),
      network_(std::move(setup.network)),
      doors_(std::move(setup.doors)),
      connections_(std::move(setup.control)),
      over_(connections_.size(), false),
      connect_(std::move(setup.connect)),
      connect_control_(std::move(setup.connect_control)),
      control_({.rank = roster_.rank,
                .size = roster_.size(),
                .generation = roster_.generation,
                .failure = &failure_,
                .history = setup.compares_histories ? &history_ : nullptr,
                .peers = borrowed(connections_),
                .names = names(roster_),
                .timing = setup.timing,
                .on_departure = setup.wake}),
      poller_(network_->poller()),
      urgent_(network_->poller()) {
  failure_.listen({.reported = [this] { wake(); },
                   .raised =
                       [this, wake = std::move(setup.wake)] {
                         wake();
                         wake_pollers();
                       }});
  for (Visitor& visitor : setup.early) {
    if (visitor.hello.purpose == wire::Purpose::data) receive(std::move(visitor));
  }
}

Presence::~Presence() = default;

void Presence::start() {
  // The thread keeps us; we do not keep the thread.
  Farewell::keep(
      fmt::format("ls-control-{}", roster_.rank),
      [self = shared_from_this()](const std::stop_token& stop) { self->run(stop); },
      [self = weak_from_this()](const Status& why) {
        if (const auto alive = self.lock()) alive->failure_.set(why);
      },
      [self = weak_from_this()] {
        const auto alive = self.lock();
        return !alive || alive->leaving_.load();
      });
}

wire::Check Presence::check_with(int rank) const {
  // The lower one is called, see data_connection().
  const wire::Hello& called = roster_.at(std::min(rank, roster_.rank));
  const bool stays_here =
      roster_.same_host(rank, roster_.rank) || is_unix(std::string(called.address_text()));
  return stays_here ? wire::Check::none : check_;
}

void Presence::leave_group(std::uint64_t group, std::uint64_t next) noexcept {
  try {
    control_.leave_group(group, next);
  } catch (...) {
    failure_.report(Status::from_current_exception());  // or the others would wait in vain
  }
  wake();
}

void Presence::wake() noexcept {
  poller_->wake();
  urgent_->wake();
}

void Presence::leave() noexcept {
  leaving_.store(true);
  wake();
  // Whoever joins anew wants to listen where we did.
  constexpr auto kMoment = std::chrono::milliseconds(500);
  closing_.wait([&] { return closed_.load(); }, Deadline::after(kMoment));
}

void Presence::close_doors() noexcept {
  for (const auto& door : doors_) {
    poller_->forget(door->listener());
    urgent_->forget(door->listener());
  }
  doors_.clear();
  closed_.store(true);
  closing_.notify();
}

void Presence::run(const std::stop_token& stop) {
  const std::stop_callback wake_up(stop, [this] { wake(); });
  struct Closing {
    Presence& presence;
    ~Closing() { presence.close_doors(); }
  } closing{*this};
  try {
    serve(stop);
  } catch (...) {
    end_generation(Status::from_current_exception(), stop);
  }
}

void Presence::end_generation(const Status& why, const std::stop_token& stop) noexcept {
  close_doors();
  try {
    failure_.report(transport::is_own_shortage(why)
                        ? transport::own_failure(why, roster_.rank)
                        : Status(ErrorKind::internal, Code::internal,
                                 fmt::format("the control thread of {} failed: {}",
                                             wire::describe(roster_.own()), why.message()),
                                 {roster_.rank}));
    // What failed may have been the poller, so this looks by itself.
    constexpr auto kLook = std::chrono::milliseconds(1);
    const Deadline end = Deadline::after(last_word_);
    while (!stop.stop_requested() && !control_.may_leave() && !end.passed()) {
      control_.poll(MonotonicClock().now());
      Gate().wait([] { return false; }, Deadline::after(kLook));
    }
  } catch (...) {
    write_log(LogLevel::error, "a control thread cannot tell the other ranks why it ends");
  }
  // Where no word got through, the end of its connections tells the others.
  shutdown_connections();
  failure_.set(why);
}

void Presence::shutdown_connections() noexcept {
  for (const auto& connection : connections_) {
    if (connection) connection->shutdown_write();
  }
}

void Presence::serve(const std::stop_token& stop) {
  const MonotonicClock clock;
  for (const auto& connection : connections_) {
    if (connection) watch(*connection);
  }
  bool left = false;
  std::optional<Time> give_up;
  control_.poll(clock.now());  // reads what has come before
  std::span<sys::Connection* const> readable;
  while (!stop.stop_requested()) {
    const Time now = clock.now();
    if (leaving_.load() && !left) {
      left = true;
      close_doors();
      control_.goodbye(history_.latest().descriptor.sequence + 1);
    }
    control_.poll(now, readable);
    // Others may be at work for long: until all have left or the generation ends, this rank passes
    // on what they say.
    const bool is_last_word = control_.has_said_all() || control_.is_ending();
    if (left && !give_up && is_last_word) give_up = now + last_word_;
    if (give_up && (control_.may_leave() || now >= *give_up)) break;
    Time next = std::min(control_.next_poll(), call_peers(now));
    if (give_up) next = std::min(next, *give_up);
    for (const auto& door : doors_) {
      while (auto visitor = door->next(now)) receive(std::move(*visitor));
      (void)door->before_wait(*urgent_, now);
      next = std::min(next, door->before_wait(*poller_, now));
    }
    // A connection at its end is readable for ever: it must not keep the thread awake.
    for (std::size_t peer = 0; peer < connections_.size(); ++peer) {
      if (over_[peer] || !connections_[peer] || !control_.is_over(static_cast<int>(peer))) continue;
      over_[peer] = true;
      --watched_;
      poller_->forget(*connections_[peer]);
    }
    readable = wait_until(next);
  }
  for (std::size_t peer = 0; peer < connections_.size(); ++peer) {
    if (connections_[peer] && !over_[peer]) poller_->forget(*connections_[peer]);
  }
  // The connections themselves are closed with the session, which the program may keep.
  shutdown_connections();
}

std::span<sys::Connection* const> Presence::wait_until(Time next) {
  const MonotonicClock clock;
  if (clock.now() < next_look_) {
    const bool woken = urgent_->wait(Deadline::at(std::min(next, next_look_)));
    if (woken || next <= next_look_) return {};
  }
  (void)poller_->wait(Deadline::at(next));
  if (watched_ >= kFewPeers) {
    next_look_ = clock.now() + std::min(kLongestPause, watched_ * kPausePerPeer);
  }
  return poller_->ready();
}

void Presence::watch(sys::Connection& connection) {
  // A child that a rank has forked holds its sockets open, and would hide its death.
  connection.underlying().watch_peer();
  poller_->watch(connection, sys::Poller::Interest::read);
  ++watched_;
}

Time Presence::call_peers(Time now) {
  if (!connect_control_) return Time::max();
  const std::vector<int> lacking = control_.lacking();
  std::erase_if(calls_, [&](const auto& each) {
    return !std::binary_search(lacking.begin(), lacking.end(), each.first);
  });
  for (const int rank : lacking) call(rank, now);
  return lacking.empty() ? Time::max() : now + kLookForAnswers;
}

void Presence::call(int rank, Time now) {
  Call& call = calls_[rank];
  if (!call.connection) {
    if (now < call.next_try) return;
    call.next_try = now + kCallAgain;
    call.called = now;
    try {
      call.connection = connect_control_(rank);
    } catch (const SystemError& error) {
      log_debug("rank {} cannot call rank {}: {}", roster_.rank, rank, error.what());
    }
    if (!call.connection) return;
    call.greeting.reset();
    if (rank > roster_.rank) return;
    wire::Hello hello = roster_.own();
    hello.purpose = wire::Purpose::control;
    hello.generation = roster_.generation;
    call.greeting = std::make_unique<Greeting>(*call.connection);
    call.greeting->send(hello);
  }
  const bool is_unanswered =
      !call.connection->underlying().is_open() && now > call.called + kUnanswered;
  if (!call.greeting) {
    (void)call.connection->write({});
    const bool is_refused = !call.connection->error().ok();
    if (is_refused) control_.refused(rank);
    if (!is_refused && !is_unanswered && !call.connection->underlying().is_open()) return;
    call.connection.reset();
    call.next_try = now + kLookAgain;
    return;
  }
  const bool answered = call.greeting->flush() && call.greeting->next();
  if (answered && call.greeting->type() == wire::FrameType::accepted) {
    call.greeting.reset();
    adopt(rank, std::move(call.connection));
    calls_.erase(rank);
    return;
  }
  if (!answered && !call.greeting->over() && call.connection->error().ok() && !is_unanswered)
    return;
  if (!is_unanswered) control_.refused(rank);
  call.greeting.reset();
  call.connection.reset();
}

void Presence::adopt(int rank, std::unique_ptr<sys::Connection> connection) {
  const auto index = static_cast<std::size_t>(rank);
  watch(*connection);
  control_.connect(rank, *connection, MonotonicClock().now());
  std::swap(connections_[index], connection);
  if (connection && !over_[index]) {
    poller_->forget(*connection);
    --watched_;
  }
  over_[index] = false;
}

Status Presence::objection(const wire::Hello& hello) const {
  const auto refused = [&](Code code, const std::string& more) {
    return Status(ErrorKind::config_error, code,
                  fmt::format("rank {} is in generation {} already and takes nobody in{}",
                              roster_.rank, roster_.generation, more));
  };
  const bool is_member = hello.rank < roster_.size() && hello.size == roster_.own().size &&
                         hello.cluster == roster_.own().cluster;
  if (!is_member) {
    return refused(Code::failed_precondition,
                   fmt::format(": the caller is of another cluster; {}", kOtherPorts));
  }
  const wire::Hello& member = roster_.at(hello.rank);
  if (hello.generation != 0 && hello.generation < roster_.generation) {
    return refused(
        Code::aborted,
        fmt::format(
            ": rank {} ({}) is of generation {}, which is over; in generation {} rank {} is {}",
            hello.rank, wire::describe_process(hello), hello.generation, roster_.generation,
            hello.rank, wire::describe_process(member)));
  }
  if (hello.purpose == wire::Purpose::claim) {
    return refused(Code::already_exists, ": " + double_claim(member, hello));
  }
  const bool is_same_process = hello.incarnation == member.incarnation;
  if (hello.purpose == wire::Purpose::join) {
    // A member that joins again before this process does, or one that its supervisor has started in
    // the place of a member that ended: it calls again, until this generation has ended.
    const bool is_new = hello.generation == 0 && !is_same_process;
    return refused(Code::unavailable,
                   is_new
                       ? fmt::format(" before the next one; rank {} is {}, and {} came later; {}",
                                     hello.rank, wire::describe_process(member),
                                     wire::describe_process(hello), kOtherPorts)
                       : std::string());
  }
  if (hello.generation != roster_.generation || !is_same_process) {
    return refused(
        Code::aborted,
        fmt::format(": rank {} ({}) of generation {} is not the rank {} of this generation, "
                    "which is {}",
                    hello.rank, wire::describe_process(hello), hello.generation, hello.rank,
                    wire::describe_process(member)));
  }
  const bool is_useful = hello.purpose == wire::Purpose::data ||
                         (hello.purpose == wire::Purpose::control && control_.lacks(hello.rank));
  if (!is_useful) return refused(Code::failed_precondition, "");
  return {};
}

bool Presence::note_claimant(std::uint64_t incarnation) {
  constexpr std::size_t kMost = 64;
  if (std::find(claimants_.begin(), claimants_.end(), incarnation) != claimants_.end())
    return false;
  if (claimants_.size() == kMost) claimants_.pop_front();
  claimants_.push_back(incarnation);
  return true;
}

void Presence::receive(Visitor visitor) {
  const wire::Hello& hello = visitor.hello;
  if (const Status why = objection(hello); !why.ok()) {
    Greeting greeting(*visitor.connection);
    greeting.send(why);
    greeting.flush();
    const bool is_rejoining = why.code() == Code::unavailable && hello.generation != 0;
    if (is_rejoining || !note_claimant(hello.incarnation)) return;
    if (hello.rank < roster_.size()) control_.notify(hello.rank, why.message());
    log_warning("rank {}: {} called from {}: {}", roster_.rank, wire::describe(hello),
                visitor.connection->peer(), why.message());
    return;
  }
  if (!visitor.acknowledge()) return;
  if (hello.purpose == wire::Purpose::control) {
    adopt(hello.rank, std::move(visitor.connection));
    return;
  }
  {
    const MutexLock lock(mutex_);
    arrived_[{hello.group, hello.rank}] = std::move(visitor.connection);
  }
  wake_pollers();
}

std::unique_ptr<sys::Connection> Presence::data_connection(std::uint64_t group, int rank) {
  if (rank < roster_.rank) return connect_(rank);
  const MutexLock lock(mutex_);
  const auto found = arrived_.find({group, rank});
  if (found == arrived_.end()) return nullptr;
  auto connection = std::move(found->second);
  arrived_.erase(found);
  return connection;
}

void Presence::wake_on_change(sys::Poller* poller) {
  const MutexLock lock(mutex_);
  pollers_.push_back(poller);
}

void Presence::forget(sys::Poller* poller) noexcept {
  const MutexLock lock(mutex_);
  std::erase(pollers_, poller);
}

void Presence::wake_pollers() noexcept {
  const MutexLock lock(mutex_);
  for (sys::Poller* poller : pollers_) poller->wake();
}

}  // namespace lockstep::coll
