// Network: a simulated network between named processes.
//
// at("host0") is the network as process host0 sees it, an ordinary sys::Network. A name like
// "host0/1" is a second process on host0: ports and Unix sockets belong to the host. A process
// listens at its host's name, "localhost", 0.0.0.0 or [::].
//
// Faults come from the driver: links get delay, jitter, small pieces, a bandwidth and a bounded
// buffer; connections are cut or half-closed; processes and directions fall silent; processes die.
//
//   World world(seed);
//   Network network(world, {.delay = 1ms, .jitter = 1ms, .piece = 7});
//   auto listener = network.at("host0").listen("host0:4000");
//   auto connection = network.at("host1").connect("host0:4000");
//   network.silence({.from = "host1", .to = "host0"});
//
// Ownership: the World outlives the Network, the Network its connections, listeners and pollers,
// and no step() is taken after it is gone. Thread rule: one thread, sys::Poller::wake() included.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "sim/channel.h"
#include "sim/world.h"
#include "sys/address.h"
#include "sys/net.h"

namespace lockstep::sim {

class Network;

namespace detail {
struct Port;
}

/// One process's view.
class ProcessNetwork final : public sys::Network {
 public:
  ProcessNetwork(sim::Network& network, detail::Peer& peer) : network_(network), peer_(peer) {}

  std::unique_ptr<sys::Listener> listen(const std::string& address) override;
  std::unique_ptr<sys::Connection> connect(const std::string& address) override;
  /// On a simulated thread wait() lets the others run. Elsewhere it steps the world, by a
  /// microsecond at least; it also ends, with false, when nothing is left to happen.
  std::unique_ptr<sys::Poller> poller() override;

  /// Differs from its last value if a read, write or accept of this process may do more than then:
  /// a driver need not poll a rank whose activity stands still.
  [[nodiscard]] std::uint64_t activity() const noexcept { return peer_.activity; }
  [[nodiscard]] const std::string& name() const noexcept { return peer_.name; }

 private:
  sim::Network& network_;
  detail::Peer& peer_;
};

class Network {
 public:
  explicit Network(World& world, LinkOptions links = {}) : world_(world), links_(links) {}
  ~Network();
  Network(const Network&) = delete;
  Network& operator=(const Network&) = delete;

  /// Made at the first call; the reference stays good as long as the Network.
  ProcessNetwork& at(const std::string& process);

  struct Way {
    std::string from;
    std::string to;
  };
  /// What is written from now on travels like this.
  void set_link(const Way& way, const LinkOptions& options);
  void set_all_links(const LinkOptions& options);

  /// Resets all connections between the two at once: both ends are broken, bytes under way are
  /// lost. New connections work.
  void cut(const std::string& one, const std::string& other);
  /// As if the sender had called shutdown_write() on all its connections that way.
  void half_close(const Way& way);
  /// Bytes are accepted and not delivered, nor are ends and resets; connects get no answer and time
  /// out after two minutes. There is no error.
  void silence(const Way& way);
  /// Both directions of all links of the process but those to itself.
  void silence_all(const std::string& process);
  /// Ends the silence: what was held back arrives now.
  void heal(const Way& way);
  void heal_all(const std::string& process);

  /// The process is gone: its own ends are broken at once; after the link's delay each peer reads
  /// what arrived and then, by seed, the end (all bytes came) or a reset (some may be lost).
  void kill(const std::string& process);
  /// A killed process may use the network again, as a new one: nothing old comes back.
  void restart(const std::string& process);
  [[nodiscard]] bool alive(const std::string& process);

 private:
  friend class ProcessNetwork;
  struct Process {
    detail::Peer peer;
    std::unique_ptr<ProcessNetwork> view;
  };
  struct Dial;

  Process& process(const std::string& name);
  detail::Peer* first_on(const std::string& host);
  detail::Port* find_open(const std::string& port) const;
  detail::Route& route(const detail::Peer& from, const detail::Peer& to);
  /// Where an address leads, seen from a process: the host and the name of the port on it.
  std::string port_name(const detail::Peer& seen_from, const sys::Address& address) const;

  std::unique_ptr<sys::Listener> listen(detail::Peer& peer, const std::string& address);
  std::unique_ptr<sys::Connection> connect(detail::Peer& peer, const std::string& address);
  void knock(const std::shared_ptr<Dial>& dial);
  void answer(const std::shared_ptr<Dial>& dial);
  void try_again(const std::shared_ptr<Dial>& dial);
  void resume_all();

  World& world_;
  LinkOptions links_;
  std::vector<std::unique_ptr<Process>> processes_;
  std::map<std::pair<const detail::Peer*, const detail::Peer*>, detail::Route> routes_;
  std::map<std::string, std::shared_ptr<detail::Port>> ports_;
  std::vector<std::unique_ptr<detail::Channel>> channels_;
  static constexpr std::uint16_t kFirstFreePort = 49152;
  std::uint16_t next_port_ = kFirstFreePort;
};

}  // namespace lockstep::sim
