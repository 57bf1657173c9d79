#include "coll/joiner.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <string_view>
#include <utility>

#include "base/log.h"
#include "base/printable.h"
#include "coll/admission.h"
#include "coll/generation.h"
#include "coll/meeting.h"
#include "coll/outgoing_call.h"
#include "sys/address.h"
#include "sys/host_identity.h"
#include "sys/os_error.h"
#include "sys/own_process.h"
#include "sys/posix_net.h"
#include "wire/abort.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace lockstep::coll {
namespace {

using sys::Interest;
using wire::Purpose;

constexpr auto kLookup = std::chrono::milliseconds(500);  // at a time, for a name
constexpr auto kNoticeEvery = std::chrono::seconds(5);
/// Who knows best who is missing speaks first: rank 0 until all have called it, from then on those
/// who wait for a neighbour.
constexpr auto kLastWord = std::chrono::seconds(1);
/// Words go around a host faster than between machines.
constexpr Duration kSettleOnOneHost = std::chrono::milliseconds(20);
/// A rank that waits for the next generation does not keep the one that is at work busy.
constexpr Duration kCallRarely = std::chrono::milliseconds(400);
constexpr std::size_t kMostRefusals = 4;  // told at the deadline
/// A listener without a key that hangs up so often is not ours, or has a key.
constexpr int kMostHangUps = 5;
/// Begins a notice for a rank that is refused: what rank 0 was given follows, or the start of it.
constexpr std::string_view kGiven = "rank 0 was given:\n";

std::uint64_t digest(const std::string& text) { return XXH3_64bits(text.data(), text.size()); }

std::uint64_t random_number() {
  std::uint64_t number = 0;
  const auto got = sys::retry_on_signal([&] { return ::getrandom(&number, sizeof(number), 0); });
  if (got != sizeof(number)) raise(sys::os_error("cannot have random numbers", errno));
  return number;
}

/// The first of them, and how many more there are: of hundreds a line has no room for all.
std::string first_of(const std::vector<std::string>& names) {
  constexpr std::size_t kMost = 12;
  const std::size_t shown = std::min(names.size(), kMost);
  std::string text = fmt::format(
      "{}", fmt::join(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(shown), ", "));
  if (shown < names.size()) text += fmt::format(" and {} more", names.size() - shown);
  return text;
}

double seconds(Duration duration) { return std::chrono::duration<double>(duration).count(); }

}  // namespace

JoiningProcess JoiningProcess::real(const JoinOptions& options) {
  return {.network = std::make_unique<sys::PosixNetwork>(
              sys::PosixNetwork::Patience{.listening = options.timeout, .connecting = kLookup}),
          .pid = static_cast<std::uint32_t>(::getpid()),
          .started = sys::process_start(),
          .host = sys::host_identity(),
          .host_name = sys::host_name(),
          .incarnation = random_number(),
          .generation = &last_generation};
}

Joiner::Joiner(const JoinOptions& options, JoiningProcess process)
    : options_(options),
      addresses_(options.addresses),
      network_(std::move(process.network)),
      last_generation_(*process.generation),
      poller_(network_->poller()),
      began_(clock_.now()),
      deadline_(Deadline::after(began_, options.timeout)),
      next_notice_(began_ + kNoticeEvery),
      members_(static_cast<int>(options.addresses.size())),
      control_(options.addresses.size()) {
  own_.library = LOCKSTEP_LIBRARY_NUMBER;
  own_.rank = options_.rank;
  own_.size = size();
  own_.replicas = options_.options.replicas;
  own_.pid = process.pid;
  own_.started = process.started;
  own_.cluster = digest(fmt::format("{}|{}", size(), fmt::join(addresses_, ",")));
  own_.generation = last_generation_.load();
  own_.incarnation = process.incarnation;
  own_.host = process.host;
  own_.arithmetic = digest(options_.arithmetic);
  own_.options = digest(agreed_options(options_));
  own_.set_host_name(process.host_name);
}

// Before what it watches.
Joiner::~Joiner() { poller_.reset(); }

Joined Joiner::run() {
  try {
    check_addresses();
    open_doors();
    if (own_.rank == 0) {
      gather();
    } else {
      call_rank_0();
    }
    note_generation(roster_.generation, last_generation_);
    if (protection_) protection_->enter(roster_.generation);
    close_spare_door();
    meet_neighbours();
    share_memory();
    agree_to_start();
  } catch (...) {
    tell_everybody(Status::from_current_exception());
    throw;
  }
  poller_.reset();  // what it watches is Presence's from now on
  for (auto& [rank, line] : lines_) {
    control_[static_cast<std::size_t>(rank)] = std::move(line.connection);
  }
  Presence::Setup setup;
  setup.roster = roster_;
  setup.network = std::move(network_);
  setup.doors = std::move(doors_);
  setup.control = std::move(control_);
  setup.early = std::move(visitors_);
  const auto labels = roster_.host_labels();
  const bool on_one_host =
      std::all_of(labels.begin(), labels.end(), [](int label) { return label == 0; });
  setup.timing = {.pulse = options_.liveness.pulse,
                  .suspect = options_.liveness.suspect,
                  .dead = options_.liveness.dead,
                  .settle = on_one_host ? kSettleOnOneHost : Timing().settle};
  if (protection_) setup.wire = options_.plaintext_data ? "tls, data in plain text" : "tls";
  // TLS checks what it carries.
  if (protection_ && !options_.plaintext_data) setup.check = wire::Check::none;
  setup.compares_histories = !on_one_host;
  setup.connect = [network = setup.network.get(), roster = roster_,
                   protection = protection_](int rank) {
    return protected_call(*network, protection.get(), reachable_address(roster, rank), rank,
                          transport::Plane::data);
  };
  setup.connect_control = [network = setup.network.get(), roster = roster_,
                           protection = protection_](int rank) {
    return protected_call(*network, protection.get(), reachable_address(roster, rank), rank,
                          transport::Plane::control);
  };
  setup.wake = [host = std::weak_ptr(host_)] {
    if (const auto alive = host.lock()) alive->wake_all();
  };
  auto presence = std::make_shared<Presence>(std::move(setup));
  presence->start();
  return {std::move(presence), host_};
}

void Joiner::check_addresses() {
  const Meeting meeting = meeting_of(options_.addresses);
  addresses_ = meeting.addresses;
  if (!meeting.between_machines) return;
  if (!options_.key.empty()) {
    protection_ = std::make_shared<Protection>(
        transport::JobKey::from_text(options_.key, "the key"), own_.rank,
        options_.plaintext_data ? ProtectedConnection::After::plain
                                : ProtectedConnection::After::encrypted);
    ::explicit_bzero(options_.key.data(), options_.key.size());
  } else if (!options_.insecure) {
    throw ConfigError(
        "ranks on several machines need a key, so that nobody else can join: make one with\n"
        "  head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \\n' > key && chmod 600 key\n"
        "copy it to every machine and set LOCKSTEP_KEY_FILE; or say that the network is trusted "
        "(insecure, LOCKSTEP_INSECURE=1)");
  }
}

void Joiner::open_doors() {
  try {
    listen();
  } catch (const SystemError& error) {
    if (error.code() != Code::already_exists || own_.rank == 0) throw;
    const std::string holder = ask_for_holder();
    if (holder.empty()) throw;
    throw SystemError(fmt::format("{}; rank 0 says: {}", error.what(), holder), error.code());
  }
}

void Joiner::listen() {
  const std::string& entry = addresses_[static_cast<std::size_t>(own_.rank)];
  const bool local = is_unix(addresses_.front());
  const std::string own_name = own_socket(own_);
  if (!options_.bind.empty() && !local) {
    doors_.push_back(
        std::make_unique<Door>(*network_, listening_address(options_.bind, entry), guard()));
  } else if (!entry.empty()) {
    try {
      doors_.push_back(
          std::make_unique<Door>(*network_, entry, is_unix(entry) ? Door::Guard() : guard()));
    } catch (const SystemError& error) {
      if (is_unix(entry)) throw;
      if (error.code() == Code::already_exists) {
        throw SystemError(fmt::format("{}; {}", error.what(), kOtherPorts), error.code());
      }
      if (error.code() != Code::invalid_argument) throw;
      throw SystemError(fmt::format("{}; if others reach this process through another address (a "
                                    "Service of Kubernetes with a ClusterIP, NAT, a published port "
                                    "of a container), set LOCKSTEP_BIND=0.0.0.0",
                                    error.what()),
                        error.code());
    }
    if (doors_.back()->listener().is_loopback()) check_loopback(entry);
  } else if (local) {
    doors_.push_back(std::make_unique<Door>(*network_, own_name));
  }
  if (!doors_.empty()) own_.set_address(entry.empty() ? doors_.front()->address() : entry);
  // Between machines the ranks of one of them have a door of their own.
  if (!local) doors_.push_back(std::make_unique<Door>(*network_, own_name));
}

void Joiner::check_loopback(const std::string& entry) const {
  if (sys::host_is_named()) return;
  const std::string what = fmt::format(
      "rank {} was to listen at {}, but on this machine that name leads to a loopback address, "
      "where no other machine can reach it; take the name out of that line of /etc/hosts, or give "
      "the cluster the number under which others know this machine",
      own_.rank, entry);
  const std::string host = sys::Address::parse(entry).host;
  const auto elsewhere =
      std::find_if(addresses_.begin(), addresses_.end(), [&](const std::string& other) {
        return !other.empty() && !is_unix(other) && sys::Address::parse(other).host != host;
      });
  if (elsewhere != addresses_.end()) {
    throw ConfigError(fmt::format("{} (a rank is at {})", what, *elsewhere));
  }
  // All ranks have that name, or none: they may well be on this machine.
  if (std::find(addresses_.begin(), addresses_.end(), "") != addresses_.end()) {
    log_warning("{}", what);
  }
}

void Joiner::close_spare_door() {
  // Nobody on this machine will call.
  if (roster_.neighbours().size() > 1) return;
  std::erase_if(doors_, [&](const auto& door) {
    if (!is_unix(door->address())) return false;
    poller_->forget(door->listener());
    return true;
  });
}

Door::Guard Joiner::guard() const {
  if (!protection_) return {};
  return [protection = protection_](std::unique_ptr<sys::Connection> caller) {
    return protection->answer(std::move(caller));
  };
}

std::unique_ptr<sys::Connection> Joiner::connect(const std::string& address, int rank) {
  return protected_call(*network_, protection_.get(), address, rank, transport::Plane::control);
}

void Joiner::serve_doors() {
  const Time now = clock_.now();
  for (const auto& door : doors_) {
    while (auto visitor = door->next(now)) {
      const wire::Hello& hello = visitor->hello;
      if (hello.purpose == Purpose::join || hello.purpose == Purpose::claim) {
        consider(std::move(*visitor));
        continue;
      }
      // Data connections are acknowledged by the control thread, which may refuse them.
      if (hello.purpose != Purpose::data && !visitor->acknowledge()) continue;
      std::erase_if(visitors_, [&](const Visitor& earlier) {
        return earlier.hello.purpose == hello.purpose && earlier.hello.group == hello.group &&
               earlier.hello.incarnation == hello.incarnation;
      });
      visitors_.push_back(std::move(*visitor));
    }
  }
}

void Joiner::serve_lines() {
  for (auto& [rank, line] : lines_) {
    const bool all_sent = line.greeting->flush();
    // What follows after a rank is ready is its control plane's.
    while (!line.ready && line.greeting->next()) handle(rank, line);
    if (line.greeting->over()) lost(rank, line);
    poller_->watch(*line.connection, line.ready
                                         ? (all_sent ? Interest::none : Interest::write)
                                         : (all_sent ? Interest::read : Interest::read_write));
  }
}

void Joiner::lost(int rank, const Line& line) {
  if (line.greeting->foreign_version()) {
    throw ConfigError(
        fmt::format("rank 0 at {} cannot be joined: {}; this rank has lockstep {} in {}: use the "
                    "same version on all ranks",
                    options_.addresses.front(), line.greeting->how(),
                    wire::version_text(own_.library), sys::process_binary()),
        Code::failed_precondition);
  }
  const bool unheard = own_.rank != 0 && !line.heard && line.greeting->hung_up();
  const bool open_to_all = !protection_ && !is_unix(addresses_.front());
  if (unheard) ++hang_ups_;
  if (unheard && (!open_to_all || own_.generation > 0 || hang_ups_ < kMostHangUps)) {
    // It has not read the Hello: it was about to leave the last generation, or this call had to make
    // room for another. call_rank_0 calls again.
    throw ConfigError("rank 0 hung up", Code::unavailable);
  }
  throw PeerLost(
      fmt::format(
          "{} died while joining{}: {}{}",
          rank == 0 ? fmt::format("rank 0 at {}", options_.addresses.front())
                    : wire::describe(line.hello),
          // Only rank 0 knows.
          own_.rank == 0 ? fmt::format(" ({} of {} present)", lines_.size() + 1, size()) : "",
          line.greeting->how(),
          unheard ? "; or it was started with a key, and this rank without" : ""),
      Code::unavailable, {rank});
}

void Joiner::handle(int rank, Line& line) {
  line.heard = true;
  switch (line.greeting->type()) {
    case wire::FrameType::abort: {
      wire::Abort abort;
      raise_if_error(wire::decode(line.greeting->payload(), size(), abort));
      if (own_.rank == 0 && roster_.members.empty() && abort.cause.kind() == ErrorKind::timeout) {
        // It does not know for whom it waited.
        const Lack lack = missing();
        throw Timeout(fmt::format("{}: {}", abort.cause.message(), lack.what),
                      Code::deadline_exceeded, lack.ranks);
      }
      std::string difference = first_difference(given_, agreed_lines(options_));
      const bool other_program = abort.cause.kind() == ErrorKind::config_error &&
                                 abort.cause.code() == Code::failed_precondition;
      if (difference.empty() && other_program) {
        difference = fmt::format("this rank runs {}", sys::process_binary());
      }
      if (difference.empty()) raise(abort.cause);
      raise({abort.cause.kind(), abort.cause.code(),
             fmt::format("{}: {}", abort.cause.message(), difference), abort.cause.culprits()});
    }
    case wire::FrameType::notice: {
      const auto payload = line.greeting->payload();
      const std::string text(reinterpret_cast<const char*>(payload.data()), payload.size());
      if (text.starts_with(kGiven)) {
        given_ = text.substr(kGiven.size());
      } else {
        log_warning("{}", one_line(text));
        rank_0_speaks();
      }
      return;
    }
    case wire::FrameType::accepted:
      rank_0_speaks();
      return;
    case wire::FrameType::ready:
      line.ready = true;
      return;
    case wire::FrameType::members:
      raise_if_error(members_.take(line.greeting->payload()));
      return;
    default:
      throw DataError(fmt::format("rank {} sent something that does not belong to joining", rank));
  }
}

void Joiner::rank_0_speaks() {
  next_notice_ = std::max(next_notice_, clock_.now() + kNoticeEvery + kLastWord);
}

void Joiner::until(const std::function<bool()>& holds, const std::function<Lack()>& lack) {
  // Once it has held it is not asked again: asking may have done something.
  for (;;) {
    if (holds()) return;
    const Time now = clock_.now();
    if (deadline_.passed(now)) {
      const auto [what, ranks] = lack();
      throw Timeout(fmt::format("joining timed out on rank {} after {:.1f} s: {}{}", own_.rank,
                                seconds(now - began_), what, refusals()),
                    Code::deadline_exceeded, ranks);
    }
    if (now >= next_notice_) {
      next_notice_ += kNoticeEvery;
      const std::string text = fmt::format("rank {} has waited {:.0f} s to join: {}", own_.rank,
                                           seconds(now - began_), lack().what);
      log_warning("{}", text);
      for (auto& [rank, line] : lines_) {
        if (own_.rank == 0) {
          line.greeting->send_notice(text);
        }
      }
    }
    serve_doors();
    serve_lines();
    look_ = Time::max();
    if (holds()) return;
    Time next = std::min({deadline_.time(), next_notice_, look_});
    for (const auto& door : doors_) next = std::min(next, door->before_wait(*poller_, now));
    (void)poller_->wait(Deadline::at(next));
  }
}

std::string Joiner::refusals() const {
  std::vector<std::string> reasons = refused_;
  for (const auto& door : doors_) {
    if (!door->last_refusal().empty()) reasons.push_back(door->last_refusal());
  }
  return reasons.empty() ? "" : fmt::format("\nrefused meanwhile: {}", fmt::join(reasons, "; "));
}

Joiner::Lack Joiner::missing() const {
  Lack lack;
  std::vector<std::string> names;
  for (int rank = 0; rank < size(); ++rank) {
    if (rank == own_.rank || lines_.count(rank) > 0) continue;
    lack.ranks.push_back(rank);
    const std::string& address = options_.addresses[static_cast<std::size_t>(rank)];
    names.push_back(address.empty() ? fmt::format("{}", rank)
                                    : fmt::format("{} ({})", rank, address));
  }
  lack.what = fmt::format("rank {} missing, {} of {} joined", first_of(names),
                          size() - static_cast<int>(names.size()), size());
  return lack;
}

void Joiner::gather() {
  until([&] { return static_cast<int>(lines_.size()) == size() - 1; }, [&] { return missing(); });
  deadline_ = Deadline::after(deadline_.time(), 2 * kLastWord);
  std::uint64_t last = own_.generation;
  for (const auto& [rank, line] : lines_) last = std::max(last, line.hello.generation);
  roster_.generation = last + 1;
  roster_.members.push_back(own_);
  for (const auto& [rank, line] : lines_) roster_.members.push_back(line.hello);
  for (wire::Hello& member : roster_.members) member.generation = roster_.generation;
  const std::vector<std::vector<std::byte>> rows = wire::encode_members(roster_.members);
  for (auto& [rank, line] : lines_) {
    for (const auto& payload : rows) line.greeting->send(wire::FrameType::members, payload);
  }
}

void Joiner::consider(Visitor visitor) {
  auto greeting = std::make_unique<Greeting>(*visitor.connection);
  const auto taken = lines_.find(visitor.hello.rank);
  Status why = objection(visitor.hello, own_, options_,
                         taken != lines_.end() ? &taken->second.hello : nullptr);
  if (own_.rank != 0) {
    why = Status(ErrorKind::config_error, Code::invalid_argument,
                 fmt::format("{} asked rank {} to take it in, but rank 0 does that; compare the "
                             "addresses",
                             wire::describe(visitor.hello), own_.rank));
  }
  const bool asks = visitor.hello.purpose == Purpose::claim;
  if (why.ok() && !asks) {
    greeting->send(wire::FrameType::accepted, {});
    lines_[visitor.hello.rank] = {.connection = std::move(visitor.connection),
                                  .greeting = std::move(greeting),
                                  .hello = visitor.hello};
    return;
  }
  if (asks && why.code() != Code::already_exists) {
    // The process that it asks for may be about to call.
    greeting->send(Status(ErrorKind::config_error, Code::unavailable, "nobody has that rank yet"));
    greeting->flush();
    visitor.connection->shutdown_write();
    return;
  }
  log_warning("{}", why.message());
  if (taken != lines_.end() && why.code() == Code::already_exists) {
    taken->second.greeting->send_notice(why.message());
  }
  if (refused_.size() == kMostRefusals) refused_.erase(refused_.begin());
  refused_.push_back(why.message());
  if (why.code() == Code::invalid_argument) {
    // He compares, and knows both values.
    greeting->send_notice(std::string(kGiven) + agreed_lines(options_));
  }
  greeting->send(why);
  greeting->flush();
  visitor.connection->shutdown_write();
}

void Joiner::reach_rank_0() {
  std::vector<std::string> reasons;  // why calls came to nothing, each once, the last one last
  OutgoingCall call(*poller_);
  const auto connected = [&] {
    const Time now = clock_.now();
    const Time again = call.since() + kCallAgain;
    if (!call.placed() && now < again) {
      look_by(again);
      return false;
    }
    try {
      if (!call.placed()) {
        call.place(connect(addresses_.front(), 0), now);
        if (!call.placed())
          throw SystemError("the resolver does not answer; check it, or write numbers");
      }
      (void)call.connection()->write({});
      raise_if_error(call.connection()->error());
      if (call.is_unanswered(now)) {
        throw SystemError(unanswered(*call.connection()), Code::unavailable);
      }
    } catch (const Error& error) {
      // A call that nobody answers is no rank that died: rank 0 may start later. One that is ended
      // in the middle may have had to make room at a crowded door.
      if (error.kind() != ErrorKind::system_error && error.kind() != ErrorKind::peer_lost) throw;
      std::erase(reasons, error.what());
      if (reasons.size() == kMostRefusals) reasons.erase(reasons.begin());
      reasons.emplace_back(error.what());
      call.give_up();
      look_by(now + kCallAgain);
      return false;
    }
    look_by(call.watch(now));
    return call.connection()->is_open();
  };
  until(connected, [&]() -> Lack {
    std::vector<std::string> all = reasons;
    if (const auto still = call.placed() ? unanswered(*call.connection()) : ""; !still.empty()) {
      std::erase(all, still);
      all.push_back(still);
    }
    return {fmt::format("rank 0 at {} does not answer: {}", options_.addresses.front(),
                        fmt::join(all.rbegin(), all.rend(), "; earlier: ")),
            {0}};
  });
  Line& rank0 = lines_[0];
  rank0.connection = call.take();
  rank0.greeting = std::make_unique<Greeting>(*rank0.connection);
  if (doors_.empty() || own_.address_text().empty()) {
    // The address under which rank 0 sees this machine is the one the others can reach.
    doors_.push_back(
        std::make_unique<Door>(*network_, rank0.connection->local_host() + ":0", guard()));
    own_.set_address(doors_.back()->address());
  }
  rank0.greeting->send(own_);
}

void Joiner::call_rank_0() {
  const Deadline own_deadline = deadline_;
  Duration pause = kCallAgain;
  for (;;) {
    deadline_ = own_deadline;
    reach_rank_0();
    deadline_ = Deadline::after(own_deadline.time(), kLastWord);
    const auto not_started = [&]() -> Lack {
      const auto rank0 = lines_.find(0);
      if (rank0 != lines_.end() && rank0->second.heard) {
        return {"rank 0 has taken this rank in, and has not said since who is missing", {0}};
      }
      if (!called_again_.empty()) return {called_again_, {0}};
      return {fmt::format("rank 0 at {} has not answered the Hello of this rank{}",
                          options_.addresses.front(),
                          hang_ups_ > 0 ? fmt::format(" and hung up {} times", hang_ups_) : ""),
              {0}};
    };
    try {
      until([&] { return static_cast<int>(members_.rows().size()) == size(); }, not_started);
      break;
    } catch (const ConfigError& refusal) {
      // It has not left the generation yet in which we were together.
      if (refusal.code() != Code::unavailable) throw;
      if (lines_[0].heard) {
        called_again_ = refusal.what();
        pause = std::min<Duration>(2 * pause, kCallRarely);
      }
    } catch (const PeerLost&) {
      // Or was leaving it when we called.
      if (own_.generation == 0 || lines_[0].heard) throw;
    }
    for (auto& [rank, line] : lines_) poller_->forget(*line.connection);
    lines_.clear();
    members_ = wire::Members(size());
    const Time again = clock_.now() + pause;
    const auto paused = [&] {
      look_by(again);
      return clock_.now() >= again;
    };
    until(paused, not_started);
  }
  roster_.generation = members_.rows().front().generation;
  roster_.rank = own_.rank;
  roster_.members = members_.rows();
  for (int rank = 0; rank < size(); ++rank) {
    if (roster_.at(rank).rank == rank && roster_.at(rank).size == size()) continue;
    throw DataError("rank 0 sent a roster that is not in order");
  }
}

void Joiner::agree_to_start() {
  const auto say_ready = [&] {
    for (auto& [rank, line] : lines_) line.greeting->send(wire::FrameType::ready, {});
  };
  if (own_.rank != 0) say_ready();
  until(
      [&] {
        return std::all_of(lines_.begin(), lines_.end(),
                           [](const auto& line) { return line.second.ready; });
      },
      [&]() -> Lack {
        Lack lack;
        std::vector<std::string> names;
        for (const auto& [rank, line] : lines_) {
          if (line.ready) continue;
          lack.ranks.push_back(rank);
          names.push_back(std::to_string(rank));
        }
        lack.what = fmt::format("rank {} is not ready", first_of(names));
        return lack;
      });
  if (own_.rank != 0) return;
  say_ready();
  until(
      [&] {
        return std::all_of(lines_.begin(), lines_.end(),
                           [](const auto& line) { return line.second.greeting->flush(); });
      },
      []() -> Lack { return {"not every rank was told to start"}; });
}

void Joiner::tell_everybody(const Status& why) noexcept {
  try {
    for (auto& [rank, line] : lines_) {
      if (!line.greeting || !line.connection) continue;
      line.greeting->send(why);
      line.greeting->flush();
      line.connection->shutdown_write();
    }
  } catch (...) {
    return;  // the end of the connection says enough
  }
}

}  // namespace lockstep::coll
