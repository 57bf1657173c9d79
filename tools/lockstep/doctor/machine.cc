#include "doctor/machine.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <fstream>
#include <sstream>

#include "sys/cgroup.h"
#include "sys/topology.h"

namespace lockstep::tool {
namespace {

constexpr double kGiB = 1024.0 * 1024 * 1024;
constexpr double kLittle = kGiB;  // of free memory
constexpr double kTooLittle = 0.0625 * kGiB;
constexpr rlim_t kFewFiles = 256;

Finding check_cores(int local_ranks) {
  const sys::Topology topology = sys::Topology::read();
  std::size_t cores = 0;
  for (const sys::NumaNode& node : topology.nodes()) cores += node.cores.size();
  const int usable = topology.usable_cores();
  const std::string what =
      fmt::format("{} core{} for this rank, {} rank{} on this host", usable, usable == 1 ? "" : "s",
                  local_ranks, local_ranks == 1 ? "" : "s");
  if (usable < static_cast<int>(cores)) {
    return {Verdict::warning, "cores", what + "; the control group's quota allows no more",
            "raise it, or start fewer ranks"};
  }
  // Whether ranks have enough cores among them is for all of them to say: see sharing.h.
  return {Verdict::ok, "cores", what, ""};
}

/// MemAvailable, in bytes; unlimited where the kernel does not say.
double free_of_machine() {
  std::ifstream file("/proc/meminfo");
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string name;
    double kilobytes = 0;
    if (words >> name >> kilobytes && name == "MemAvailable:") return kilobytes * 1024;
  }
  return sys::kUnlimited;
}

double left(const std::filesystem::path& folder, const char* limit, const char* used) {
  const auto most = sys::number_in(folder / limit);  // "max" is no number
  const auto now = sys::number_in(folder / used);
  if (!most) return sys::kUnlimited;
  return std::max(*most - now.value_or(0.0), 0.0);
}

double free_of_groups() {
  return sys::least_limit(
      sys::read_text("/proc/self/cgroup"), "/sys/fs/cgroup", "memory",
      [](const auto& folder) {
        return left(folder, "memory.limit_in_bytes", "memory.usage_in_bytes");
      },
      [](const auto& folder) { return left(folder, "memory.max", "memory.current"); });
}

Finding check_memory() {
  const double machine = free_of_machine();
  const double group = free_of_groups();
  const double least = std::min(machine, group);
  std::string what = fmt::format("{:.1f} GiB free", least / kGiB);
  if (group < machine) what += " within the control group";
  if (least >= kLittle) return {Verdict::ok, "memory", what, ""};
  return {least < kTooLittle ? Verdict::problem : Verdict::warning, "memory", what,
          "ranks of a host share memory for what they exchange: make room, or raise the control "
          "group's limit"};
}

Findings check_limits() {
  Findings findings;
  rlimit limit{};
  if (::getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
    findings.push_back({Verdict::warning, "limits",
                        fmt::format("the address space is limited to {:.1f} GiB",
                                    static_cast<double>(limit.rlim_cur) / kGiB),
                        "shared memory reserves much more than it uses: ulimit -v unlimited"});
  }
  if (::getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
    findings.push_back(
        {Verdict::problem, "limits",
         fmt::format("files are limited to {:.1f} GiB", static_cast<double>(limit.rlim_cur) / kGiB),
         "shared memory counts as a file and reserves much more than it uses: "
         "ulimit -f unlimited"});
  }
  if (::getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < kFewFiles) {
    findings.push_back({Verdict::warning, "limits",
                        fmt::format("{} open files are allowed", limit.rlim_cur),
                        "every rank on another host takes some: ulimit -n 1024"});
  }
  return findings;
}

}  // namespace

Findings check_machine(int local_ranks) {
  Findings findings = {check_cores(local_ranks), check_memory()};
  const Findings limits = check_limits();
  findings.insert(findings.end(), limits.begin(), limits.end());
  return findings;
}

std::string processor_text() {
  std::ifstream file("/proc/cpuinfo");
  std::string model = "unknown processor";
  std::string flags;
  for (std::string line; std::getline(file, line) && flags.empty();) {
    const std::size_t colon = line.find(": ");
    if (colon == std::string::npos) continue;
    if (line.starts_with("model name")) model = line.substr(colon + 2);
    if (line.starts_with("flags")) flags = line.substr(colon + 1) + " ";
  }
  for (const char* flag : {"amx_tile", "avx512f", "avx2", "avx", "sse4_2"}) {
    if (flags.find(fmt::format(" {} ", flag)) != std::string::npos) {
      return fmt::format("{}, {}", model, flag);
    }
  }
  return model;
}

}  // namespace lockstep::tool
