#include "bench/peers/launches.h"

#include <fmt/format.h>
#include <unistd.h>

#include <map>

#include "bench/peers/networks.h"

namespace lockstep::bench::peers {
namespace {

void append(Command& command, const Command& more) {
  command.insert(command.end(), more.begin(), more.end());
}

std::string program(const Surroundings& here, const std::string& name) {
  std::string path = here.programs + "/" + name;
  if (access(path.c_str(), X_OK) != 0)
    throw GroupFailed(fmt::format("{} is not built (its library was not found)", name));
  return path;
}

Command rank_command(const std::string& contestant, const Surroundings& here,
                     const std::string& program_name) {
  Command command = {
      program(here, program_name), "--directory", here.directory, "--name", contestant, "--ranks",
      std::to_string(here.ranks)};
  if (!here.network.empty()) append(command, {"--network", here.network});
  return command;
}

/// One command for each rank, with the addresses of all.
Launch ranks_apart(const std::string& contestant, const Surroundings& here,
                   const std::string& program_name, const std::string& variant,
                   const std::vector<std::string>& addresses) {
  Launch launch{.name = contestant, .ranks = here.ranks, .commands = {}, .environment = {}};
  std::string all;
  for (const std::string& address : addresses) all += (all.empty() ? "" : ",") + address;
  for (int rank = 0; rank < here.ranks; ++rank) {
    Command command = rank_command(contestant, here, program_name);
    append(command, {"--rank", std::to_string(rank), "--addresses", all});
    if (!variant.empty()) append(command, {"--variant", variant});
    launch.commands.push_back(std::move(command));
  }
  return launch;
}

/// One port for all ranks: in a network each has a host of its own.
std::vector<std::string> tcp_addresses(const Surroundings& here, int port) {
  std::vector<std::string> addresses;
  for (int rank = 0; rank < here.ranks; ++rank) {
    const std::string host = here.network.empty() ? "127.0.0.1" : Networks::host(rank);
    addresses.push_back(fmt::format("{}:{}", host, port));
  }
  return addresses;
}

Launch lockstep(const std::string& contestant, const Surroundings& here) {
  constexpr const char* kProgram = "lockstep_contestant";
  if (contestant == "lockstep_tls")
    return ranks_apart(contestant, here, kProgram, "encrypted", tcp_addresses(here, 7102));
  if (!here.network.empty())
    return ranks_apart(contestant, here, kProgram, "plaintext", tcp_addresses(here, 7101));
  std::vector<std::string> addresses;
  for (int rank = 0; rank < here.ranks; ++rank)
    addresses.push_back(fmt::format("unix:{}/{}.rank{}", here.directory, contestant, rank));
  return ranks_apart(contestant, here, kProgram, "memory", addresses);
}

/// The tunings that made Open MPI fastest for one size or another.
Command open_mpi_tuning(const std::string& contestant) {
  static const std::map<std::string, Command> tunings = {
      {"ompi_default", {}},
      {"ompi_sm", {"--mca", "coll_sm_priority", "90"}},
      {"ompi_ucx",
       {"--mca", "pml", "ucx", "--mca", "pml_ucx_tls", "any", "--mca", "pml_ucx_devices", "any"}},
      {"ompi_ring",
       {"--mca", "coll_tuned_use_dynamic_rules", "1", "--mca", "coll_tuned_allreduce_algorithm",
        "5", "--mca", "coll_tuned_allreduce_algorithm_segmentsize", "131072"}},
  };
  const auto found = tunings.find(contestant);
  if (found == tunings.end()) throw GroupFailed("there is no contestant " + contestant);
  return found->second;
}

Launch open_mpi(const std::string& contestant, const Surroundings& here) {
  constexpr const char* kLauncher = "mpirun.openmpi";
  if (!can_run(kLauncher)) throw GroupFailed("Open MPI is not installed");
  // Ranks pin themselves, as those of all contestants do.
  Command command = {kLauncher, "--allow-run-as-root",     "--bind-to", "none",
                     "-np",     std::to_string(here.ranks)};
  if (here.ranks > 2) append(command, {"--oversubscribe"});
  if (!here.network.empty()) {
    append(command, {"--mca", "pml", "ob1", "--mca", "btl", "tcp,self", "--mca",
                     "btl_tcp_if_include", Networks::subnet()});
  } else {
    append(command, {"--mca", "btl_vader_backing_directory", here.directory});
  }
  append(command, open_mpi_tuning(contestant));
  append(command, rank_command(contestant, here, "openmpi_contestant"));
  return {.name = contestant,
          .ranks = here.ranks,
          .commands = {command},
          .environment = {"TMPDIR=" + here.directory, "UCX_POSIX_DIR=" + here.directory,
                          "UCX_LOG_LEVEL=error"}};
}

Launch mpich(const std::string& contestant, const Surroundings& here) {
  constexpr const char* kLauncher = "mpiexec.mpich";
  if (!can_run(kLauncher)) throw GroupFailed("MPICH is not installed");
  Command command = {kLauncher, "-n", std::to_string(here.ranks)};
  append(command, rank_command(contestant, here, "mpich_contestant"));
  return {.name = contestant,
          .ranks = here.ranks,
          .commands = {command},
          .environment = {"TMPDIR=" + here.directory}};
}

}  // namespace

Launch launch_of(const std::string& contestant, const Surroundings& here) {
  const std::string family = contestant.substr(0, contestant.find('_'));
  const std::string variant =
      family == contestant ? std::string() : contestant.substr(family.size() + 1);
  if (family == "lockstep") return lockstep(contestant, here);
  if (family == "ompi") return open_mpi(contestant, here);
  if (family == "mpich") return mpich(contestant, here);
  if (family == "gloo")
    return ranks_apart(contestant, here, "gloo_contestant", variant, tcp_addresses(here, 0));
  if (family == "ceiling")
    return ranks_apart(contestant, here, "ceiling_contestant", variant, tcp_addresses(here, 0));
  if (family == "openssl")
    return ranks_apart(contestant, here, "openssl_contestant", variant, tcp_addresses(here, 7103));
  throw GroupFailed("there is no contestant " + contestant);
}

}  // namespace lockstep::bench::peers
