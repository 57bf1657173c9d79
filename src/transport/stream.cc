#include "transport/stream.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <chrono>
#include <cstring>
#include <optional>
#include <string>
#include <utility>

#include "base/crc32c.h"
#include "transport/mismatch.h"
#include "transport/outgoing.h"
#include "transport/own_failure.h"

namespace lockstep::transport {
namespace {

using sys::Transfer;

constexpr const char* kSameCalls = "every rank must make the same calls in the same order";

}  // namespace

struct StreamLink::Peer {
  Peer(int number, sys::Connection& its_connection, std::uint64_t generation, wire::Check check)
      : rank(number), connection(its_connection), outgoing(generation, check), reader(check) {}

  int rank;
  sys::Connection& connection;
  sys::Poller::Interest watched = sys::Poller::Interest::none;

  Outgoing outgoing;
  bool unsent = false;  // is in unsent_
  bool deaf = false;    // writing failed

  // The stream from the peer. Read ahead by at most one inbox; data for long receives goes past it.
  bool over = false;         // it ended or broke
  bool condemned = false;    // it held something we cannot go on with; the generation is failing
  std::optional<Time> lost;  // since when the connection is known to be over, by who waits for it
  /// Bytes sent are not acknowledged, and nothing answers.
  struct Stall {
    Time since;
    sys::Delivery then;
  };
  std::optional<Stall> stall;
  std::array<std::byte, 4096> inbox;
  std::span<const std::byte> unread;  // of inbox
  wire::FrameReader reader;
  std::uint64_t announced = 0;  // sequence of the last operation frame
  wire::Descriptor descriptor;  // its payload
  bool judged = true;           // that frame was found to agree with ours
  std::uint64_t frame_at = 0;   // of all data of that operation, where the frame in progress begins
  std::size_t payload_left = 0;  // of the data frame in progress
  std::uint32_t crc = 0;         // of what has arrived of it
};

StreamLink::StreamLink(const Setup& setup)
    : borrowed_(setup.borrowed),
      rank_(setup.rank),
      generation_(setup.generation),
      failure_(*setup.failure),
      clock_(*setup.clock),
      poller_(setup.poller),
      history_(setup.history != nullptr ? setup.history : &own_history_),
      members_(setup.members),
      gone_(setup.gone),
      has_left_(setup.has_left),
      late_(setup.late),
      begun_(setup.begun),
      leave_(setup.leave),
      path_patience_(setup.path_patience),
      spin_(setup.spin),
      peers_(static_cast<std::size_t>(setup.size)) {
  assert(setup.peers.size() == peers_.size());
  assert(setup.checks.empty() || setup.checks.size() == peers_.size());
  for (int peer = 0; peer < setup.size; ++peer) {
    sys::Connection* connection = setup.peers[static_cast<std::size_t>(peer)];
    if (connection == nullptr || peer == rank_) continue;
    const wire::Check check =
        setup.checks.empty() ? wire::Check::none : setup.checks[static_cast<std::size_t>(peer)];
    peers_[static_cast<std::size_t>(peer)] =
        std::make_unique<Peer>(peer, *connection, generation_, check);
  }
}

StreamLink::~StreamLink() { unwatch(); }

void StreamLink::unwatch() noexcept {
  if (poller_ == nullptr) return;
  for (const auto& peer : peers_) {
    if (peer && peer->watched != sys::Poller::Interest::none) poller_->forget(peer->connection);
  }
}

bool StreamLink::suspect(int peer) const noexcept {
  const Peer* p = peers_[static_cast<std::size_t>(peer)].get();
  return p != nullptr && (p->over || p->deaf);
}

int StreamLink::begin(const wire::Descriptor& descriptor, const Exposure& /*mine*/,
                      std::size_t slot) {
  assert(unsent_.empty());
  if (slot > 0) no_shared_access();
  descriptor_ = descriptor;
  sequence_ = descriptor.sequence;
  fingerprint_ = wire::fingerprint(descriptor);
  history_->add(descriptor);
  if (begun_) begun_->set(sequence_, fingerprint_);
  return kNobody;
}

int StreamLink::end() {
  flush();
  return unsent_.empty() ? kNobody : unsent_.front()->rank;
}

void StreamLink::send(int to, std::span<const std::byte> bytes) {
  if (failed() || bytes.empty()) return;
  Peer& peer = *peers_[static_cast<std::size_t>(to)];
  if (peer.outgoing.sequence() != sequence_) peer.outgoing.begin(descriptor_);
  peer.outgoing.add(bytes);
  if (!peer.unsent) {
    peer.unsent = true;
    unsent_.push_back(&peer);
  }
  flush();
}

bool StreamLink::drained(int to) {
  flush();
  return !peers_[static_cast<std::size_t>(to)]->unsent;
}

std::uint64_t StreamLink::unsent() const noexcept {
  std::uint64_t bytes = 0;
  for (const Peer* peer : unsent_) bytes += peer->outgoing.untouched();
  return bytes;
}

void StreamLink::flush() {
  std::erase_if(unsent_, [this](Peer* peer) {
    if (!peer->deaf) {
      peer->deaf = peer->outgoing.flush(peer->connection) != Transfer::State::open;
      if (peer->deaf) judge_error(*peer);
    }
    peer->unsent = !peer->outgoing.empty();
    return !peer->unsent;
  });
}

std::size_t StreamLink::receive(int from, std::span<std::byte> bytes) {
  if (failed()) return 0;
  flush();
  Peer& peer = *peers_[static_cast<std::size_t>(from)];
  std::size_t moved = 0;
  while (moved < bytes.size() && find_data(peer)) {
    const std::span<std::byte> into =
        bytes.subspan(moved, std::min(bytes.size() - moved, peer.payload_left));
    std::size_t now = 0;
    if (peer.unread.empty() && into.size() >= peer.inbox.size()) {
      const Transfer transfer = peer.connection.read(into);
      now = transfer.bytes;
      note_state(peer, transfer.state);
    } else if (!peer.unread.empty() || refill(peer)) {
      now = std::min(into.size(), peer.unread.size());
      std::memcpy(into.data(), peer.unread.data(), now);
      peer.unread = peer.unread.subspan(now);
    }
    if (now == 0 || !passes(peer, into.first(now))) break;
    moved += now;
  }
  return moved;
}

bool StreamLink::passes(Peer& peer, std::span<const std::byte> bytes) {
  const wire::Header& header = peer.reader.header();
  peer.payload_left -= bytes.size();
  if (header.crc) peer.crc = crc32c(bytes, peer.crc);  // while they are in the cache
  if (peer.payload_left > 0) return true;
  const std::uint64_t begin = peer.frame_at;
  peer.frame_at += header.length;
  if (!header.crc || peer.crc == *header.crc) return true;
  report_altered(
      peer, header.sequence,
      fmt::format("the CRC-32C of bytes {} to {} that it sent is wrong", begin, peer.frame_at - 1));
  return false;
}

bool StreamLink::find_data(Peer& peer) {
  if (peer.condemned) return false;
  for (;;) {
    if (!peer.judged || (peer.payload_left > 0 && peer.announced != sequence_)) {
      if (!agrees(peer)) return false;
      peer.judged = true;
    }
    if (peer.payload_left > 0) return true;
    if (!next_frame(peer)) return false;
  }
}

bool StreamLink::next_frame(Peer& peer) {
  using Event = wire::FrameReader::Event;
  Event event = peer.reader.next(peer.unread);
  while (event == Event::more) {
    if (!refill(peer)) return false;
    event = peer.reader.next(peer.unread);
  }
  const wire::Header& header = peer.reader.header();
  if (event == Event::altered) {
    report_altered(
        peer, header.sequence,
        fmt::format("the CRC-32C of a frame of type {} is wrong", static_cast<int>(header.type)));
    return false;
  }
  if (event == Event::bad) {
    condemn(peer,
            {ErrorKind::data_error,
             Code::data_loss,
             fmt::format("rank {} got from rank {} ({}) an {}", member(rank_), member(peer.rank),
                         peer.connection.peer(), peer.reader.error().message()),
             {member(peer.rank)}});
    return false;
  }
  if (header.generation != generation_) {
    condemn(peer,
            {ErrorKind::mismatch,
             Code::failed_precondition,
             fmt::format("rank {} is in generation {}, rank {} in generation {}: a process of an "
                         "earlier run is still there; end it",
                         member(peer.rank), header.generation, member(rank_), generation_),
             {member(peer.rank)}});
    return false;
  }
  if (event == Event::data && header.sequence == peer.announced) {
    peer.payload_left = header.length;
    peer.crc = 0;
    return true;
  }
  if (header.type == wire::FrameType::operation) {
    peer.descriptor = peer.reader.descriptor();
    if (peer.descriptor.sequence == header.sequence && header.sequence > peer.announced) {
      peer.announced = header.sequence;
      peer.judged = false;
      peer.frame_at = 0;
      return true;
    }
  }
  condemn(peer, {ErrorKind::data_error,
                 Code::data_loss,
                 fmt::format("rank {} got from rank {} ({}) a frame of type {} for operation {} "
                             "where none belongs (the last one announced is {})",
                             member(rank_), member(peer.rank), peer.connection.peer(),
                             static_cast<int>(header.type), header.sequence, peer.announced),
                 {member(peer.rank)}});
  return false;
}

bool StreamLink::refill(Peer& peer) {
  assert(peer.unread.empty());
  if (peer.over) return false;
  const Transfer transfer = peer.connection.read(peer.inbox);
  note_state(peer, transfer.state);
  peer.unread = std::span(peer.inbox).first(transfer.bytes);
  return transfer.bytes > 0;
}

void StreamLink::note_state(Peer& peer, Transfer::State state) {
  peer.over = state != Transfer::State::open;
  if (state == Transfer::State::broken) judge_error(peer);
}

void StreamLink::judge_error(Peer& peer) {
  // Both ranks live, so nobody else would end the wait.
  const Status why = peer.connection.error();
  // TLS looks at what it carries.
  if (why.kind() == ErrorKind::data_error) report_altered(peer, sequence_, why.message());
  if (is_own_shortage(why)) condemn(peer, own_failure(why, member(rank_)));
}

bool StreamLink::agrees(Peer& peer) {
  if (peer.announced == sequence_ && wire::fingerprint(peer.descriptor) == fingerprint_) {
    return true;
  }
  if (peer.announced > sequence_) {
    report_ahead(peer);
  } else {
    report_disagreement(peer);
  }
  return false;
}

void StreamLink::report_disagreement(Peer& peer) {
  // Here and there the same operation: the one the peer is at, or the one it was at when it sent
  // what we never asked for.
  const std::uint64_t sequence = peer.announced;
  const std::optional<History::Entry> ours = history_->at(sequence);
  std::vector<std::optional<wire::Descriptor>> rows;
  std::vector<int> ranks;
  for (int rank = 0; rank < size(); ++rank) {
    const Peer* other = peers_[static_cast<std::size_t>(rank)].get();
    if (rank == rank_ && ours) {
      rows.emplace_back(ours->descriptor);
    } else if (other != nullptr && other->announced == sequence) {
      rows.emplace_back(other->descriptor);
    } else {
      continue;
    }
    ranks.push_back(member(rank));
  }
  const Status table = mismatch(sequence, rows, ranks);
  if (!table.culprits().empty()) return condemn(peer, table);
  condemn(peer,
          {ErrorKind::mismatch, Code::invalid_argument,
           fmt::format("rank {} sent bytes for operation {} ({}) that rank {} did not expect; "
                       "it is at operation {} ({}); {}",
                       member(peer.rank), sequence, wire::describe(peer.descriptor), member(rank_),
                       sequence_, wire::describe(descriptor_), kSameCalls),
           both(peer)});
}

// A connection keeps its order and an operation ends only when its bytes are written: a peer that
// announces a later operation will never send what we still expect of this one.
void StreamLink::report_ahead(Peer& peer) {
  condemn(peer,
          {ErrorKind::mismatch, Code::invalid_argument,
           fmt::format("the ranks disagree about operation {}: rank {} expects bytes from rank {}, "
                       "which has sent none and gone on\n  rank {}: operation {}: {}\n  rank {}: "
                       "operation {}: {}\n{}",
                       sequence_, member(rank_), member(peer.rank), member(rank_), sequence_,
                       wire::describe(descriptor_), member(peer.rank), peer.announced,
                       wire::describe(peer.descriptor), kSameCalls),
           both(peer)});
}

void StreamLink::report_altered(Peer& peer, std::uint64_t sequence, const std::string& what) {
  condemn(peer, {ErrorKind::data_error, Code::data_loss,
                 fmt::format(
                     "operation {}{} was altered on its way from rank {} ({}) to rank {}: {}; look "
                     "for a fault in the network between the two machines or in their memory",
                     sequence,
                     sequence == sequence_ ? fmt::format(" ({})", wire::describe(descriptor_)) : "",
                     member(peer.rank), peer.connection.peer(), member(rank_), what),
                 both(peer)});
}

std::vector<int> StreamLink::both(const Peer& peer) const {
  return {std::min(member(rank_), member(peer.rank)), std::max(member(rank_), member(peer.rank))};
}

void StreamLink::condemn(Peer& peer, const Status& why) {
  peer.condemned = true;
  fail(why);
}

void StreamLink::judge_path(Peer& peer, Time now) {
  if (!peer.lost) peer.lost = now;
  if (peer.condemned || now - *peer.lost < path_patience_) return;
  const Status how = peer.connection.error();
  condemn(peer,
          {ErrorKind::peer_lost, Code::unavailable,
           fmt::format("the data connection between rank {} and rank {} ({}) is broken{}, though "
                       "both ranks are well; look for what lies between them",
                       member(rank_), member(peer.rank), peer.connection.peer(),
                       how.ok() ? "" : fmt::format(" ({})", how.message())),
           both(peer)});
}

void StreamLink::look_for_losses(Time now) {
  constexpr auto kBetweenLooks = std::chrono::milliseconds(100);
  if (now - looked_ < kBetweenLooks) return;
  // What was not looked at for long counts from now on: this process may have been stopped.
  const bool anew = now - looked_ >= path_patience_;
  looked_ = now;
  for (const auto& peer : peers_) {
    if (!peer || peer->over || peer->condemned) continue;
    if (anew) peer->stall.reset();
    judge_losses(*peer, now);
  }
}

void StreamLink::judge_losses(Peer& peer, Time now) {
  const auto delivery = peer.connection.underlying().delivery();
  if (!delivery || !delivery->waits) return peer.stall.reset();
  if (!peer.stall || delivery->acknowledged != peer.stall->then.acknowledged ||
      delivery->answers != peer.stall->then.answers) {
    peer.stall = {now, *delivery};
    return;
  }
  // A rank that is silent altogether is given up before. Of two ranks that both wait for
  // acknowledgements, the one that hears the other knows the direction, so it speaks first.
  const bool hears = delivery->data != peer.stall->then.data;
  const Duration waited = now - peer.stall->since;
  if (waited < path_patience_ + path_patience_ / (hears ? 4 : 2)) return;
  const int mine = member(rank_);
  const int theirs = member(peer.rank);
  condemn(peer,
          {ErrorKind::peer_lost, Code::unavailable,
           fmt::format("packets {} rank {} {} rank {} ({}) are lost, though both ranks are well: "
                       "bytes that rank {} has sent have not been acknowledged for {:.1f} s, {} "
                       "from rank {}; look for a firewall, a route or a cable between the two",
                       hears ? "from" : "between", mine, hears ? "to" : "and", theirs,
                       peer.connection.peer(), mine, std::chrono::duration<double>(waited).count(),
                       hears ? "while packets arrive" : "and nothing arrives", theirs),
           both(peer)});
}

void StreamLink::no_shared_access() noexcept {
  assert(!"a plan for shared memory was given to a stream link");
  fail({ErrorKind::internal, Code::internal,
        "a plan for shared memory was given to a stream link; this is a bug of lockstep"});
}

int StreamLink::offer(const wire::Descriptor& /*descriptor*/, std::size_t /*slot*/,
                      std::span<const std::byte> /*data*/, std::uint32_t /*stage*/) {
  no_shared_access();
  return kNobody;
}

void StreamLink::publish(std::uint32_t /*stage*/) { no_shared_access(); }

bool StreamLink::reached(int /*peer*/, std::uint32_t /*stage*/) {
  no_shared_access();
  return false;
}

const Exposure& StreamLink::exposed(int /*peer*/) {
  static const Exposure nothing;
  no_shared_access();
  return nothing;
}

std::byte* StreamLink::slot(int /*peer*/) {
  no_shared_access();
  return nullptr;
}

bool StreamLink::spin(FunctionRef<bool()> done) {
  return Gate::poll([&] { return done() || failed(); }, spin_);
}

bool StreamLink::wait(int peer, FunctionRef<bool()> done, Deadline deadline) {
  using sys::Interest;
  // The control plane fails the generation from its own thread, and not every poller sees that.
  constexpr auto kLook = std::chrono::milliseconds(20);
  constexpr auto kSoon = std::chrono::milliseconds(1);
  for (;;) {
    bool unready = false;
    bool possible = false;
    if (done() || failed()) return true;
    const Time now = clock_.now();
    if (deadline.passed(now)) return false;
    if (gone_ && peer >= 0) {
      const Status why = gone_(member(peer), descriptor_, suspect(peer));
      // What it sent before it left counts, so look once more after having seen it leave.
      if (!why.ok() && (done() || failed())) return true;
      if (!why.ok()) fail(why);
    }
    if (peer >= 0 && suspect(peer)) judge_path(*peers_[static_cast<std::size_t>(peer)], now);
    look_for_losses(now);
    if (poller_ == nullptr) continue;
    for (const auto& p : peers_) {
      if (!p) continue;
      const bool reads = p->rank == peer && !p->over && !p->condemned;
      const bool writes = p->unsent && !p->deaf;
      const Interest wanted = reads && writes ? Interest::read_write
                              : reads         ? Interest::read
                              : writes        ? Interest::write
                                              : Interest::none;
      if (wanted == Interest::none && p->watched == wanted) continue;
      if (!p->connection.ready()) {
        unready = true;
        continue;
      }
      const std::optional<Interest> interest =
          wanted == Interest::none ? wanted : p->connection.before_wait(wanted);
      if (!interest) possible = true;
      if (!interest || *interest == p->watched) continue;
      poller_->watch(p->connection, *interest);
      p->watched = *interest;
    }
    if (possible) continue;
    (void)poller_->wait(earlier(deadline, Deadline::at(now + (unready ? kSoon : kLook))));
  }
}

void StreamLink::await_verdict() noexcept {
  constexpr auto kLook = std::chrono::milliseconds(1);
  const Time since = clock_.now();
  while (poller_ != nullptr && !failed() && clock_.now() - since < kVerdictPatience) {
    (void)poller_->wait(Deadline::at(clock_.now() + kLook));
  }
  settle_alone();
}

void StreamLink::leave() noexcept {
  if (const auto tell = std::exchange(leave_, {})) tell(sequence_ + 1);
}

void StreamLink::retire() noexcept {
  unwatch();
  poller_ = nullptr;
  unsent_.clear();
  for (auto& peer : peers_) peer.reset();
  begun_.reset();
  borrowed_.reset();
}

}  // namespace lockstep::transport
