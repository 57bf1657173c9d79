#include "coll/process_fabric.h"

#include <algorithm>
#include <new>

#include "coll/lazy_connection.h"
#include "coll/session_impl.h"
#include "sys/topology.h"
#include "transport/host_rings.h"
#include "transport/stream.h"

namespace lockstep::coll {
namespace {

using transport::HostRings;
using transport::ShmHost;
using transport::ShmLink;
using transport::StreamLink;

/// What a link of streams borrows.
struct Streams {
  std::shared_ptr<Presence> presence;
  MonotonicClock clock;
  std::unique_ptr<sys::Poller> poller;
  std::vector<std::unique_ptr<LazyConnection>> connections;

  explicit Streams(std::shared_ptr<Presence> its_presence)
      : presence(std::move(its_presence)), poller(presence->network().poller()) {
    presence->wake_on_change(poller.get());
  }
  ~Streams() { presence->forget(poller.get()); }
  Streams(const Streams&) = delete;
  Streams& operator=(const Streams&) = delete;
};

/// A rank of this host, as its segment counts them.
int index_of(const Roster& roster, int member) {
  const std::vector<int> neighbours = roster.neighbours();
  return static_cast<int>(std::find(neighbours.begin(), neighbours.end(), member) -
                          neighbours.begin());
}

std::vector<int> indices_here(const Roster& roster, const std::vector<int>& members) {
  std::vector<int> indices;
  for (const int member : members) {
    if (roster.same_host(roster.rank, member)) indices.push_back(index_of(roster, member));
  }
  return indices;
}

/// Ranks of the generation as the group counts them.
std::vector<int> places_of(const std::vector<int>& ranks, const std::vector<int>& members) {
  std::vector<int> places;
  for (std::size_t place = 0; place < members.size(); ++place) {
    if (std::find(ranks.begin(), ranks.end(), members[place]) != ranks.end()) {
      places.push_back(static_cast<int>(place));
    }
  }
  return places;
}

std::unique_ptr<StreamLink> stream_link(const std::shared_ptr<Presence>& presence,
                                        const std::shared_ptr<ShmHost>& host, std::uint64_t group,
                                        const std::vector<int>& members, int rank) {
  const Roster& roster = presence->roster();
  auto streams = std::make_shared<Streams>(presence);
  std::shared_ptr<const HostRings> rings;  // null: nobody else is on this host
  if (auto indices = indices_here(roster, members); indices.size() > 1) {
    rings = std::make_shared<const HostRings>(host, group, std::move(indices));
  }
  StreamLink::Setup setup;
  for (const int member : members) {
    LazyConnection::Turn turn;
    if (roster.same_host(roster.rank, member)) {
      turn = [rings, index = index_of(roster, member)](auto socket) {
        return rings->connect(index, std::move(socket));
      };
    }
    streams->connections.push_back(
        member == roster.rank
            ? nullptr
            : std::make_unique<LazyConnection>(presence, group, member, std::move(turn)));
    setup.peers.push_back(streams->connections.back().get());
    setup.checks.push_back(presence->check_with(member));
  }
  setup.rank = rank;
  setup.size = static_cast<int>(members.size());
  setup.generation = presence->roster().generation;
  setup.failure = &presence->failure();
  setup.clock = &streams->clock;
  setup.poller = streams->poller.get();
  setup.members = members;
  // A rank that waits for the network has nothing better to do, if it has a core of its own.
  setup.spin = SpinPolicy::for_computing_threads(
      static_cast<int>(presence->roster().neighbours().size()), sys::usable_processors());
  setup.path_patience = presence->dead_after();
  setup.gone = [presence, group](int who, const wire::Descriptor& operation, bool over) {
    return presence->missing(who, group, operation, over ? DataPath::over : DataPath::open);
  };
  setup.has_left = [presence, group](int who) { return presence->has_left(who, group); };
  setup.leave = [presence, group](std::uint64_t next) { presence->leave_group(group, next); };
  // The control plane compares the operations of the group of all ranks.
  if (group == kWorld) setup.history = &presence->history();
  // Of two, each knows for whom it waits.
  if (members.size() > 2) {
    setup.begun = presence->enter_group(group);
    setup.late = [presence, group, members](std::uint64_t sequence) {
      return places_of(presence->late(group, sequence), members);
    };
  }
  setup.borrowed = std::move(streams);
  return std::make_unique<StreamLink>(setup);
}

}  // namespace

bool ProcessFabric::on_one_host(const std::vector<int>& members) const {
  const Roster& roster = presence_->roster();
  return host_ != nullptr && std::all_of(members.begin(), members.end(), [&](int member) {
           return roster.same_host(roster.rank, member);
         });
}

std::unique_ptr<transport::Link> ProcessFabric::link(std::uint64_t id,
                                                     const std::vector<int>& members, int rank) {
  if (!on_one_host(members)) return stream_link(presence_, host_, id, members, rank);
  return std::make_unique<ShmLink>(*host_, id, members, indices_here(presence_->roster(), members),
                                   rank, presence_->failure());
}

std::string ProcessFabric::transport(const std::vector<int>& members) const {
  if (on_one_host(members)) return "shared memory";
  const Roster& roster = presence_->roster();
  const bool has_neighbours = std::any_of(members.begin(), members.end(), [&](int a) {
    return std::any_of(members.begin(), members.end(),
                       [&](int b) { return a != b && roster.same_host(a, b); });
  });
  return (has_neighbours ? "shared memory and " : "") + presence_->wire();
}

std::shared_ptr<std::byte> ProcessFabric::allocate(std::size_t bytes) {
  return host_ ? host_->allocate(bytes) : Fabric::allocate(bytes);
}

void ProcessFabric::leave(int /*rank*/) noexcept {
  if (host_) host_->leave();
  presence_->leave();
}

}  // namespace lockstep::coll
