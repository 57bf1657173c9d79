#include "cluster/launchers.h"

#include <fmt/format.h>

#include <algorithm>

#include "cluster/addresses.h"
#include "cluster/text.h"
#include "lockstep/error.h"
#include "sys/address.h"

namespace lockstep::cluster {
namespace {

constexpr int kMaxRanks = ClusterSpec::kMaxTasks;

struct Names {
  const char* rank;
  const char* size;
  const char* local_size;
};

Claim claim_of(const EnvironmentView& variables, std::string source, const Variable& rank,
               const Variable& size, const char* local_size = nullptr) {
  Claim claim{.source = std::move(source)};
  claim.size = number_of(size, {.lowest = 1, .highest = kMaxRanks});
  claim.rank = number_of(rank, {.lowest = 0, .highest = claim.size - 1});
  if (local_size == nullptr) return claim;
  if (const auto local = find_variable(variables, {local_size})) {
    claim.local_size = number_of(*local, {.lowest = 1, .highest = claim.size});
  }
  return claim;
}

/// A pair of names that belong to one launcher alone: one of them is not enough.
std::optional<Claim> claim_by(const EnvironmentView& variables, const char* source,
                              const Names& names) {
  if (!variables(names.rank) && !variables(names.size)) return std::nullopt;
  const std::string reader =
      fmt::format("{} sets along with the other; start with its launcher", source);
  return claim_of(variables, source, need_variable(variables, {names.rank}, reader),
                  need_variable(variables, {names.size}, reader), names.local_size);
}

}  // namespace

std::optional<Claim> torchrun_claim(const EnvironmentView& variables) {
  const auto rank = find_variable(variables, {"RANK"});
  const auto size = find_variable(variables, {"WORLD_SIZE"});
  if (!rank || !size) return std::nullopt;
  return claim_of(variables, "torchrun", *rank, *size, "LOCAL_WORLD_SIZE");
}

std::optional<Claim> mpi_claim(const EnvironmentView& variables) {
  if (auto claim = claim_by(variables, "Open MPI",
                            {.rank = "OMPI_COMM_WORLD_RANK",
                             .size = "OMPI_COMM_WORLD_SIZE",
                             .local_size = "OMPI_COMM_WORLD_LOCAL_SIZE"})) {
    return claim;
  }
  return claim_by(variables, "MPICH",
                  {.rank = "PMI_RANK", .size = "PMI_SIZE", .local_size = "MPI_LOCALNRANKS"});
}

std::optional<Claim> slurm_claim(const EnvironmentView& variables) {
  const auto size = find_variable(variables, {"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"});
  if (!size) return std::nullopt;
  // sbatch gives its script the job's variables and rank 0, without a step; salloc not even that.
  const bool in_step = find_variable(variables, {"SLURM_STEP_ID", "SLURM_STEPID",
                                                 "SLURM_STEP_NUM_TASKS", "SLURM_STEP_NODELIST"})
                           .has_value();
  if (!in_step && (variables("SLURM_JOB_ID") || !variables("SLURM_PROCID"))) return std::nullopt;
  return claim_of(variables, "Slurm",
                  need_variable(variables, {"SLURM_PROCID"}, "srun sets; start with srun"), *size);
}

std::optional<std::string> master_of(const EnvironmentView& variables, const Claim& claim) {
  std::string master;
  std::string name = "LOCKSTEP_MASTER";
  if (const auto given = find_variable(variables, {"LOCKSTEP_MASTER"})) {
    master = address_of(*given);
  } else if (const auto host = find_variable(variables, {"MASTER_ADDR"})) {
    name = "MASTER_ADDR";
    const Variable port_text =
        need_variable(variables, {"MASTER_PORT"}, "stands with MASTER_ADDR; set both");
    int port = number_of(port_text, {.lowest = 1, .highest = 65535});
    // The port is torchrun's own where its agent keeps the store; ours is the next one.
    if (claim.source == "torchrun" && variables("TORCHELASTIC_USE_AGENT_STORE") == "True") {
      if (++port > 65535)
        refuse(port_text, 0, "lockstep needs the port after it", "use a lower one");
    }
    const bool v6 = host->text.find(':') != std::string::npos && !host->text.starts_with('[');
    master = v6 ? fmt::format("[{}]:{}", host->text, port) : fmt::format("{}:{}", host->text, port);
    if (const std::string problem = address_problem(master); !problem.empty()) {
      refuse(*host, 0, problem, "set MASTER_ADDR to the name or number of rank 0's host");
    }
  } else {
    return std::nullopt;
  }
  if (claim.local_size > 0 && claim.local_size < claim.size && is_loopback(master)) {
    throw ConfigError(fmt::format(
        "{}: rank 0 would be at {}, which only its own host can reach, but {} started {} ranks of "
        "which {} are on this host; set {} to an address that all hosts reach",
        name, master, claim.source, claim.size, claim.local_size, name));
  }
  return master;
}

std::string meeting_name(std::string_view launcher, std::string_view job) {
  constexpr std::size_t most = 64;  // it shall fit into the name of a socket
  std::string text(job.substr(job.size() - std::min(job.size(), most)));
  for (char& c : text) {
    const bool plain = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                       c == '.' || c == '-';
    if (!plain) c = '_';
  }
  return fmt::format("{}-{}", launcher, text);
}

std::string meeting_at(const std::string& master, const Claim& claim) {
  if (claim.size == 1 || claim.local_size != claim.size) return {};
  const sys::Address address = sys::Address::parse(master);
  return address.kind == sys::Address::Kind::tcp ? std::to_string(address.port) : std::string();
}

ClusterSpec workers_behind(const std::string& master, int size) {
  std::vector<std::string> addresses(static_cast<std::size_t>(size));
  addresses.front() = master;
  return ClusterSpec{{"worker", addresses}};
}

}  // namespace lockstep::cluster
