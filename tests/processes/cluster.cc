#include "tests/processes/cluster.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <string_view>

namespace lockstep::processes {
namespace {

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

std::string to_string(Wire wire) {
  switch (wire) {
    case Wire::local:
      return "Local";
    case Wire::tcp:
      return "Tcp";
    case Wire::tls:
      return "Tls";
    case Wire::plaintext:
      return "Plaintext";
  }
  return "?";
}

std::vector<int> free_ports(int count) {
  static std::vector<sys::HeldPorts> held;  // a test ends with its process
  const std::vector<std::uint16_t>& ports = held.emplace_back(count).numbers();
  return {ports.begin(), ports.end()};
}

ProcessCluster::ProcessCluster(const ClusterOptions& options)
    : options_(options),
      ports_(options.wire == Wire::local || !options.addresses.empty() ? 0 : options.ranks),
      addresses_(options.addresses),
      ranks_(static_cast<std::size_t>(options.ranks)) {
  for (int rank = 0; rank < options.ranks && options.addresses.empty(); ++rank) {
    addresses_.push_back(
        options.wire == Wire::local
            ? fmt::format("unix:{}/{}", directory_.path(), rank)
            : fmt::format("127.0.0.1:{}", ports_.numbers()[static_cast<std::size_t>(rank)]));
  }
  for (int rank = 0; rank < options.ranks; ++rank) {
    const auto& absent = options.absent;
    if (std::find(absent.begin(), absent.end(), rank) == absent.end()) start(rank);
  }
}

std::vector<std::string> ProcessCluster::environment(int rank) const {
  const auto index = static_cast<std::size_t>(rank);
  std::map<std::string, std::string> variables;
  const auto set = [&](const std::string& variable) {
    const std::size_t name = variable.find('=');
    variables[variable.substr(0, name)] = variable.substr(name + 1);
  };
  for (char** variable = environ; *variable != nullptr; ++variable) {
    if (!is_ours(*variable)) set(*variable);
  }
  set(fmt::format("LOCKSTEP_RANK={}", rank));
  set(fmt::format("LOCKSTEP_ADDRESSES={}", fmt::join(addresses_, ",")));
  set(fmt::format("XDG_RUNTIME_DIR={}", directory_.path()));
  if (options_.wire == Wire::tcp) set("LOCKSTEP_INSECURE=1");
  if (options_.wire == Wire::tls || options_.wire == Wire::plaintext) {
    set(fmt::format("LOCKSTEP_KEY={}", kTestKey));
  }
  if (options_.wire == Wire::plaintext) set("LOCKSTEP_PLAINTEXT_DATA=1");
  if (!options_.hosts.empty()) {
    set("LOCKSTEP_HOST=" + options_.hosts[index]);
  } else if (options_.wire != Wire::local && options_.wrappers.empty()) {
    set(fmt::format("LOCKSTEP_HOST=host{}", rank));
  }
  for (const std::string& variable : options_.environment) set(variable);
  if (const auto own = options_.environment_of.find(rank); own != options_.environment_of.end()) {
    for (const std::string& variable : own->second) set(variable);
  }
  std::vector<std::string> list;
  for (const auto& [name, value] : variables) {
    if (!value.empty()) list.push_back(fmt::format("{}={}", name, value));
  }
  return list;
}

void ProcessCluster::start(int rank) {
  const auto index = static_cast<std::size_t>(rank);
  sys::Command command;
  if (!options_.wrappers.empty()) command.argv = options_.wrappers[index];
  command.argv.push_back(options_.program.empty() ? LOCKSTEP_RANK_PROGRAM : options_.program);
  command.argv.push_back(options_.scenario);
  command.environment = environment(rank);
  command.output = sys::Command::Output::pipe;
  Rank started;
  started.process = sys::PosixProcesses().spawn(command);
  started.output = started.process->take_output();
  started.errors = started.process->take_errors();
  ranks_[index] = std::move(started);
}

ProcessCluster::~ProcessCluster() = default;

void ProcessCluster::read(std::chrono::milliseconds patience) {
  std::vector<pollfd> waiting;
  for (Rank& rank : ranks_) {
    if (!rank.process || rank.process->poll()) continue;
    waiting.push_back({.fd = rank.output.get(), .events = POLLIN, .revents = 0});
    waiting.push_back({.fd = rank.errors.get(), .events = POLLIN, .revents = 0});
    waiting.push_back({.fd = rank.process->end_descriptor(), .events = POLLIN, .revents = 0});
  }
  ::poll(waiting.data(), waiting.size(), static_cast<int>(patience.count()));
  for (Rank& rank : ranks_) {
    if (!rank.process) continue;
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

bool ProcessCluster::wait_for_all(const std::string& text, std::chrono::milliseconds patience) {
  const Deadline deadline = Deadline::after(patience);
  for (int rank = 0; rank < size(); ++rank) {
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(deadline.time() - MonotonicClock().now());
    if (!wait_for(rank, text, std::max(left, std::chrono::milliseconds(0)))) return false;
  }
  return true;
}

std::vector<Outcome> ProcessCluster::finish(std::chrono::milliseconds patience) {
  const Deadline deadline = Deadline::after(patience);
  const auto all_ended = [&] {
    return std::all_of(ranks_.begin(), ranks_.end(), [](const Rank& rank) {
      return !rank.process || rank.process->poll().has_value();
    });
  };
  while (!all_ended() && !deadline.passed()) read(std::chrono::milliseconds(20));
  std::vector<Outcome> outcomes;
  for (Rank& rank : ranks_) {
    Outcome outcome;
    if (!rank.process) {
      outcomes.push_back(std::move(outcome));
      continue;
    }
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
