#include "sim/network.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "lockstep/error.h"
#include "sim/socket.h"

namespace lockstep::sim {

using detail::Break;
using detail::Channel;
using detail::Peer;
using detail::Port;
using detail::Route;
using detail::Side;

namespace {

/// A SYN without an answer is sent again after 1, 2, 4 ... seconds; this many waits, then it times
/// out: 127 s in all, as in Linux.
constexpr int kConnectTries = 7;

bool is_own_host(const Peer& peer, const std::string& host) {
  constexpr std::array<std::string_view, 5> own = {"localhost", "127.0.0.1", "::1", "0.0.0.0",
                                                   "::"};
  return host == peer.host || std::find(own.begin(), own.end(), host) != own.end();
}

}  // namespace

/// A connection being made.
struct Network::Dial {
  Channel* channel;
  Peer* from;
  Peer* to;
  std::string port;
  int tries = 0;
  bool accepted = false;  // the answer under way: yes or refused
};

std::unique_ptr<sys::Listener> ProcessNetwork::listen(const std::string& address) {
  return network_.listen(peer_, address);
}

std::unique_ptr<sys::Connection> ProcessNetwork::connect(const std::string& address) {
  return network_.connect(peer_, address);
}

std::unique_ptr<sys::Poller> ProcessNetwork::poller() {
  return std::make_unique<detail::SimPoller>(network_.world_);
}

Network::~Network() = default;

Network::Process& Network::process(const std::string& name) {
  for (const auto& known : processes_) {
    if (known->peer.name == name) return *known;
  }
  auto& made = *processes_.emplace_back(std::make_unique<Process>());
  made.peer.name = name;
  made.peer.host = name.substr(0, name.find('/'));
  made.view = std::make_unique<ProcessNetwork>(*this, made.peer);
  return made;
}

ProcessNetwork& Network::at(const std::string& name) { return *process(name).view; }

Peer* Network::first_on(const std::string& host) {
  for (const auto& known : processes_) {
    if (known->peer.host == host) return &known->peer;
  }
  return nullptr;
}

Port* Network::find_open(const std::string& port) const {
  const auto found = ports_.find(port);
  return found != ports_.end() && found->second->open ? found->second.get() : nullptr;
}

Route& Network::route(const Peer& from, const Peer& to) {
  const auto [place, made] = routes_.try_emplace({&from, &to});
  if (made) place->second = {.options = links_, .from = &from, .to = &to, .silent = false};
  return place->second;
}

std::string Network::port_name(const Peer& seen_from, const sys::Address& address) const {
  if (address.kind == sys::Address::Kind::unix_socket) {
    return fmt::format("{} unix:{}", seen_from.host, address.path);
  }
  const std::string& host = is_own_host(seen_from, address.host) ? seen_from.host : address.host;
  return fmt::format("{}:{}", host, address.port);
}

std::unique_ptr<sys::Listener> Network::listen(Peer& peer, const std::string& text) {
  sys::Address address = sys::Address::parse(text);
  const bool tcp = address.kind == sys::Address::Kind::tcp;
  if (!peer.alive) throw SystemError(fmt::format("cannot listen at {}: the process is dead", text));
  if (tcp && !is_own_host(peer, address.host)) {
    throw SystemError(
        fmt::format("cannot listen at {}: the address is not one of host {}", text, peer.host));
  }
  if (tcp && address.port == 0) {
    do {
      address.port = next_port_++;
      if (next_port_ == 0) next_port_ = kFirstFreePort;
    } while (find_open(port_name(peer, address)) != nullptr);
  }
  auto& place = ports_[port_name(peer, address)];
  if (place != nullptr && place->open) {
    throw SystemError(
        fmt::format("cannot listen at {}: the address is in use by {}; choose another or stop it",
                    text, place->owner->name),
        Code::already_exists);
  }
  place = std::make_shared<Port>();
  place->address = address.to_string();
  place->owner = &peer;
  return std::make_unique<detail::ListeningSocket>(place);
}

std::unique_ptr<sys::Connection> Network::connect(Peer& peer, const std::string& text) {
  const sys::Address address = sys::Address::parse(text);
  const bool same_host =
      address.kind == sys::Address::Kind::unix_socket || is_own_host(peer, address.host);
  const std::string port = port_name(peer, address);
  const auto open = ports_.find(port);
  Peer* to =
      open != ports_.end() ? open->second->owner : first_on(same_host ? peer.host : address.host);
  if (to == nullptr) {
    throw SystemError(fmt::format("cannot connect to {}: there is no host {}; check the name", text,
                                  address.host),
                      Code::not_found);
  }
  const std::string own_address =
      address.kind == sys::Address::Kind::unix_socket
          ? fmt::format("{} ({})", text, peer.name)
          : fmt::format("{}:{}", peer.host, 32768 + channels_.size() % 16384);
  auto& channel = *channels_.emplace_back(std::make_unique<Channel>(
      world_, channels_.size(), Channel::Binding{&peer, &route(peer, *to), own_address},
      Channel::Binding{to, &route(*to, peer), text}));
  auto connection = std::make_unique<detail::Socket>(channel, Side::caller);
  if (!peer.alive) {
    channel.break_end(Side::caller, Break::killed);
    return connection;
  }
  auto dial = std::make_shared<Dial>();
  dial->channel = &channel;
  dial->from = &peer;
  dial->to = to;
  dial->port = port;
  const LinkOptions& options = route(peer, *to).options;
  world_.schedule_after(options.delay + world_.random().up_to(options.jitter),
                        [this, dial] { knock(dial); });
  return connection;
}

/// The request has come to the other host.
void Network::knock(const std::shared_ptr<Dial>& dial) {
  Channel& channel = *dial->channel;
  if (!channel.is_open(Side::caller)) return;
  if (!route(*dial->from, *dial->to).delivers()) return try_again(dial);
  if (!dial->accepted) {
    if (Port* port = find_open(dial->port)) {
      dial->to = port->owner;
      dial->accepted = true;
      channel.bind(Side::caller, {dial->from, &route(*dial->from, *dial->to),
                                  channel.peer_address(Side::callee)});
      channel.bind(Side::callee,
                   {dial->to, &route(*dial->to, *dial->from), channel.peer_address(Side::caller)});
      channel.establish(Side::callee);
      port->waiting.push_back(&channel);
    }
  }
  const LinkOptions& back = route(*dial->to, *dial->from).options;
  world_.schedule_after(back.delay + world_.random().up_to(back.jitter),
                        [this, dial] { answer(dial); });
}

/// The answer has come back to the caller.
void Network::answer(const std::shared_ptr<Dial>& dial) {
  Channel& channel = *dial->channel;
  if (!route(*dial->to, *dial->from).delivers()) return try_again(dial);
  if (dial->accepted) {
    channel.establish(Side::caller);
  } else {
    channel.break_end(Side::caller, Break::refused);
  }
}

void Network::try_again(const std::shared_ptr<Dial>& dial) {
  if (dial->tries == kConnectTries) {
    return dial->channel->break_end(Side::caller, Break::timed_out);
  }
  world_.schedule_after(std::chrono::seconds(1 << dial->tries++), [this, dial] { knock(dial); });
}

void Network::set_link(const Way& way, const LinkOptions& options) {
  route(process(way.from).peer, process(way.to).peer).options = options;
}

void Network::set_all_links(const LinkOptions& options) {
  links_ = options;
  for (auto& [ends, known] : routes_) known.options = options;
}

void Network::cut(const std::string& one, const std::string& other) {
  const Peer* a = &process(one).peer;
  const Peer* b = &process(other).peer;
  for (const auto& channel : channels_) {
    const Peer* caller = &channel->process(Side::caller);
    const Peer* callee = &channel->process(Side::callee);
    if ((caller != a || callee != b) && (caller != b || callee != a)) continue;
    channel->break_end(Side::caller, Break::cut);
    channel->break_end(Side::callee, Break::cut);
  }
}

void Network::half_close(const Way& way) {
  const Peer* from = &process(way.from).peer;
  const Peer* to = &process(way.to).peer;
  for (const auto& channel : channels_) {
    for (const Side side : {Side::caller, Side::callee}) {
      if (&channel->process(side) == from && &channel->process(detail::other(side)) == to) {
        channel->shutdown_write(side);
      }
    }
  }
}

void Network::silence(const Way& way) {
  route(process(way.from).peer, process(way.to).peer).silent = true;
}

void Network::silence_all(const std::string& name) { process(name).peer.silent = true; }

void Network::heal(const Way& way) {
  route(process(way.from).peer, process(way.to).peer).silent = false;
  resume_all();
}

void Network::heal_all(const std::string& name) {
  process(name).peer.silent = false;
  resume_all();
}

void Network::resume_all() {
  for (const auto& channel : channels_) channel->resume();
}

void Network::kill(const std::string& name) {
  Peer& peer = process(name).peer;
  if (!peer.alive) return;
  peer.alive = false;
  for (const auto& channel : channels_) {
    for (const Side side : {Side::caller, Side::callee}) {
      if (&channel->process(side) == &peer) channel->abandon(side);
    }
  }
  for (auto& [address, port] : ports_) {
    if (port->owner != &peer) continue;
    port->open = false;
    port->waiting.clear();
  }
  ++peer.activity;
}

void Network::restart(const std::string& name) { process(name).peer.alive = true; }

bool Network::alive(const std::string& name) { return process(name).peer.alive; }

}  // namespace lockstep::sim
