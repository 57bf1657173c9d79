#include "tests/processes/cluster.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "sys/posix_net.h"

namespace lockstep::processes {
namespace {

constexpr const char* kKey = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";

bool is_ours(std::string_view variable) {
  for (const char* prefix :
       {"LOCKSTEP_", "TF_CONFIG=", "OMPI_", "PMI", "SLURM", "RANK=", "WORLD_SIZE="}) {
    if (variable.rfind(prefix, 0) == 0) return true;
  }
  return false;
}

void drain(const sys::Descriptor& from, std::string& into) {
  std::array<char, 4096> buffer;
  for (;;) {
    const ssize_t got = ::read(from.get(), buffer.data(), buffer.size());
    if (got <= 0) return;
    into.append(buffer.data(), static_cast<std::size_t>(got));
  }
}

}  // namespace

std::vector<int> free_ports(int count) {
  sys::PosixNetwork network;
  std::vector<std::unique_ptr<sys::Listener>> listeners;
  std::vector<int> ports;
  for (int i = 0; i < count; ++i) {
    listeners.push_back(network.listen("127.0.0.1:0"));
    const std::string address = listeners.back()->address();
    ports.push_back(std::stoi(address.substr(address.rfind(':') + 1)));
  }
  return ports;
}

ProcessCluster::ProcessCluster(const ClusterOptions& options) : addresses_(options.addresses) {
  const std::vector<int> ports =
      options.wire == Wire::local ? std::vector<int>() : free_ports(options.ranks);
  for (int rank = 0; rank < options.ranks && options.addresses.empty(); ++rank) {
    addresses_.push_back(options.wire == Wire::local
                             ? fmt::format("unix:{}/{}", directory_.path(), rank)
                             : fmt::format("127.0.0.1:{}", ports[static_cast<std::size_t>(rank)]));
  }
  sys::PosixProcesses processes;
  for (int rank = 0; rank < options.ranks; ++rank) {
    const auto index = static_cast<std::size_t>(rank);
    std::vector<std::string> environment;
    for (char** variable = environ; *variable != nullptr; ++variable) {
      if (!is_ours(*variable)) environment.emplace_back(*variable);
    }
    environment.push_back(fmt::format("LOCKSTEP_RANK={}", rank));
    environment.push_back(fmt::format("LOCKSTEP_ADDRESSES={}", fmt::join(addresses_, ",")));
    environment.push_back(fmt::format("XDG_RUNTIME_DIR={}", directory_.path()));
    if (options.wire == Wire::tcp) environment.emplace_back("LOCKSTEP_INSECURE=1");
    if (options.wire == Wire::tls || options.wire == Wire::plaintext) {
      environment.push_back(fmt::format("LOCKSTEP_KEY={}", kKey));
    }
    if (options.wire == Wire::plaintext) environment.emplace_back("LOCKSTEP_PLAINTEXT_DATA=1");
    if (!options.hosts.empty()) {
      environment.push_back("LOCKSTEP_HOST=" + options.hosts[index]);
    } else if (options.wire != Wire::local && options.wrappers.empty()) {
      environment.push_back(fmt::format("LOCKSTEP_HOST=host{}", rank));
    }
    environment.insert(environment.end(), options.environment.begin(), options.environment.end());
    sys::Command command;
    if (!options.wrappers.empty()) command.argv = options.wrappers[index];
    command.argv.emplace_back(LOCKSTEP_RANK_PROGRAM);
    command.argv.push_back(options.scenario);
    command.environment = std::move(environment);
    command.output = sys::Command::Output::pipe;
    Rank started;
    started.process = processes.spawn(command);
    started.output = started.process->take_output();
    started.errors = started.process->take_errors();
    ranks_.push_back(std::move(started));
  }
}

ProcessCluster::~ProcessCluster() = default;

void ProcessCluster::read(std::chrono::milliseconds patience) {
  std::vector<pollfd> waiting;
  for (Rank& rank : ranks_) {
    waiting.push_back({.fd = rank.output.get(), .events = POLLIN, .revents = 0});
    waiting.push_back({.fd = rank.errors.get(), .events = POLLIN, .revents = 0});
    if (!rank.process->poll()) {
      waiting.push_back({.fd = rank.process->end_descriptor(), .events = POLLIN, .revents = 0});
    }
  }
  ::poll(waiting.data(), waiting.size(), static_cast<int>(patience.count()));
  for (Rank& rank : ranks_) {
    drain(rank.output, rank.text);
    drain(rank.errors, rank.text);
  }
}

bool ProcessCluster::wait_for(int rank, const std::string& text,
                              std::chrono::milliseconds patience) {
  const Deadline deadline = Deadline::after(patience);
  Rank& which = ranks_[static_cast<std::size_t>(rank)];
  while (which.text.find(text) == std::string::npos) {
    if (deadline.passed() || which.process->poll()) {
      read(std::chrono::milliseconds(0));
      return which.text.find(text) != std::string::npos;
    }
    read(std::chrono::milliseconds(20));
  }
  return true;
}

std::vector<Outcome> ProcessCluster::finish(std::chrono::milliseconds patience) {
  const Deadline deadline = Deadline::after(patience);
  const auto all_ended = [&] {
    return std::all_of(ranks_.begin(), ranks_.end(),
                       [](const Rank& rank) { return rank.process->poll().has_value(); });
  };
  while (!all_ended() && !deadline.passed()) read(std::chrono::milliseconds(20));
  std::vector<Outcome> outcomes;
  for (Rank& rank : ranks_) {
    Outcome outcome;
    outcome.ended = rank.process->poll();
    if (!outcome.ended) {
      (void)rank.process->signal(sys::Signal::kill);
      rank.process->wait(Deadline::after(std::chrono::seconds(2)));
    }
    drain(rank.output, rank.text);
    drain(rank.errors, rank.text);
    outcome.text = rank.text;
    outcomes.push_back(std::move(outcome));
  }
  return outcomes;
}

}  // namespace lockstep::processes
