#include "bench/train/field.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <stdlib.h>

#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <string_view>
#include <system_error>

namespace lockstep::bench::train {
namespace {

constexpr int kRanks = 2;
constexpr const char* kMemory = "/dev/shm";
/// Any will do, as long as all workers have the same.
constexpr const char* kKey = "6c6f636b73746570206d6561737572657320697473656c6620616e6420706565";
constexpr int kPort = 7201;

/// For everybody. One thread a replica: libraries that see two cores would use both in each
/// process. And kernels for the processor: OpenBLAS takes those of 2004 for one that it does not
/// know, and steps that slow would hide what the exchange costs.
std::vector<std::string> surroundings() {
  std::vector<std::string> variables = {"OMP_NUM_THREADS=1", "OPENBLAS_NUM_THREADS=1"};
  if (const std::string kernels = blas_kernels(); !kernels.empty())
    variables.push_back("OPENBLAS_CORETYPE=" + kernels);
  return variables;
}

std::string new_directory() {
  std::error_code error;  // what cannot be removed does not harm
  for (const auto& entry : std::filesystem::directory_iterator(kMemory, error)) {
    if (peers::left_behind(entry.path().filename()))
      std::filesystem::remove_all(entry.path(), error);
  }
  std::string path = fmt::format("{}/{}XXXXXX", kMemory, peers::own_name());
  if (mkdtemp(path.data()) == nullptr)
    throw std::system_error(errno, std::generic_category(), "cannot make " + path);
  return path;
}

void append(std::vector<std::string>& list, const std::vector<std::string>& more) {
  list.insert(list.end(), more.begin(), more.end());
}

constexpr std::string_view kDefaults = "_defaults";

bool has_defaults(const std::string& name) { return name.ends_with(kDefaults); }

/// What a contestant does, without how its memory is set.
std::string kind_of(const std::string& name) {
  return has_defaults(name) ? name.substr(0, name.size() - kDefaults.size()) : name;
}

/// Those that add up the gradients of the same two replicas.
bool trains_together(const std::string& name) {
  const std::string kind = kind_of(name);
  return kind != "independent" && kind != "solo" && kind != "single";
}

}  // namespace

std::string blas_kernels() {
  if (const char* chosen = std::getenv("OPENBLAS_CORETYPE")) return chosen;
  if (__builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl")) return "SkylakeX";
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return "Haswell";
  return {};
}

bool has_torch(const std::string& python) {
  try {
    peers::run_command(
        {python, "-c", "import torch.distributed as d; assert d.is_gloo_available()"});
    return true;
  } catch (const std::runtime_error&) {
    return false;
  }
}

Field::Field(FieldOptions options) : options_(std::move(options)), directory_(new_directory()) {}

Field::~Field() {
  contestants_.clear();
  networks_.reset();
  std::error_code error;  // what cannot be removed cannot be helped here
  std::filesystem::remove_all(directory_, error);
}

Launch::Process Field::ours(const std::string& kind, const std::string& name, int rank) const {
  return {{options_.programs + "/train_contestant", kind, "--net", options_.net, "--orders",
           orders_path(directory_, name), "--rank", std::to_string(rank), "--memory",
           has_defaults(name) ? "defaults" : "tuned"},
          surroundings()};
}

Launch Field::workers(const std::string& name, const std::vector<std::string>& addresses,
                      const peers::Command& more) const {
  Launch launch{.name = name, .processes = {}};
  for (int rank = 0; rank < kRanks; ++rank) {
    Launch::Process process = ours("processes", name, rank);
    append(process.command, more);
    append(process.environment, {fmt::format("LOCKSTEP_RANK={}", rank),
                                 fmt::format("LOCKSTEP_ADDRESSES={}", fmt::join(addresses, ",")),
                                 "XDG_RUNTIME_DIR=" + directory_});
    launch.processes.push_back(std::move(process));
  }
  return launch;
}

Launch Field::workers_apart(const std::string& name) {
  if (!networks_) {
    networks_.emplace();
    networks_->shape();
  }
  const bool overlap = kind_of(name) == "overlap";
  const int port = kPort + (overlap ? 0 : 1) + (has_defaults(name) ? 2 : 0);
  std::vector<std::string> addresses;
  for (int rank = 0; rank < kRanks; ++rank)
    addresses.push_back(fmt::format("{}:{}", peers::Networks::host(rank), port));
  peers::Command more = {"--overlap", overlap ? "always" : "never"};
  if (overlap) append(more, {"--bucket", std::to_string(options_.bucket_bytes)});
  Launch launch = workers(name, addresses, more);
  for (int rank = 0; rank < kRanks; ++rank) {
    Launch::Process& process = launch.processes[static_cast<std::size_t>(rank)];
    peers::Command inside = {"ip", "netns", "exec", networks_->prefix() + std::to_string(rank)};
    append(inside, process.command);
    process.command = std::move(inside);
    append(process.environment,
           {fmt::format("LOCKSTEP_KEY={}", kKey), "LOCKSTEP_PLAINTEXT_DATA=1"});
  }
  return launch;
}

Launch Field::ddp() const {
  Launch launch{.name = "ddp", .processes = {}};
  for (int rank = 0; rank < kRanks; ++rank) {
    Launch::Process process{
        {options_.python, LOCKSTEP_DDP_CONTESTANT, "--net", options_.net, "--orders",
         orders_path(directory_, "ddp"), "--rank", std::to_string(rank), "--ranks",
         std::to_string(kRanks), "--store", directory_ + "/ddp.store"},
        surroundings()};
    process.environment.emplace_back("GLOO_SOCKET_IFNAME=lo");
    launch.processes.push_back(std::move(process));
  }
  return launch;
}

Launch Field::launch(const std::string& name) {
  const std::string kind = kind_of(name);
  if (kind == "overlap" || kind == "no_overlap") return workers_apart(name);
  if (kind == "ddp") return ddp();
  if (kind == "processes") {
    std::vector<std::string> addresses;
    for (int rank = 0; rank < kRanks; ++rank)
      addresses.push_back(fmt::format("unix:{}/{}.rank{}", directory_, name, rank));
    return workers(name, addresses, {});
  }
  if (kind == "threads") return {.name = name, .processes = {ours(kind, name, 0)}};
  Launch launch{.name = name, .processes = {}};
  for (int rank = 0; rank < (kind == "single" ? 1 : kRanks); ++rank)
    launch.processes.push_back(ours(kind == "solo" ? kind : "plain", name, rank));
  return launch;
}

Contestant& Field::contestant(const std::string& name) {
  std::unique_ptr<Contestant>& contestant = contestants_[name];
  if (!contestant) {
    contestant = std::make_unique<Contestant>(launch(name), directory_);
    compare_loss(name, *contestant);
  }
  return *contestant;
}

// A comparison of speeds means nothing unless all do the same work.
void Field::compare_loss(const std::string& name, Contestant& contestant) {
  constexpr int kSteps = 5;
  constexpr double kTolerance = 1e-4;
  contestant.steps(kSteps);
  const double loss = contestant.loss();
  if (!trains_together(name)) return;
  for (const auto& [other, other_loss] : first_losses_) {
    if (std::abs(loss - other_loss) <= kTolerance * other_loss) continue;
    throw ContestantFailed(fmt::format("after {} steps its loss is {}, but that of {} is {}",
                                       kSteps, loss, other, other_loss));
  }
  first_losses_[name] = loss;
}

}  // namespace lockstep::bench::train
