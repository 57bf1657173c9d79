// `make same-bits`: the same training in every layout, and a table of the weights' digests.
//
// R x W is R replicas in each of W processes: as threads of one process (also one after another),
// as processes over shared memory (also with tune_process_memory()), and as hosts of their own over
// TCP (while backward goes on, and by all lanes after it), in two network namespaces if this is
// root. All digests of one job must be equal.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <map>
#include <memory>
#include <optional>
#include <set>

#include "tests/processes/cluster.h"
#include "tests/processes/two_networks.h"

namespace {

using lockstep::processes::ClusterOptions;
using lockstep::processes::ProcessCluster;
using lockstep::processes::TwoNetworks;
using lockstep::processes::Wire;

struct Layout {
  std::string name;
  int replicas;
  int workers;
  Wire wire = Wire::local;
  std::string words = {};
  bool namespaces = false;
};

/// The digest that every worker printed; nothing, and a line that says why, if there is none.
std::optional<std::string> digest_of(const Layout& layout, const std::string& job,
                                     TwoNetworks* networks) {
  ClusterOptions options;
  options.ranks = layout.workers;
  options.wire = layout.wire;
  options.program = LOCKSTEP_TRAIN_WORKER;
  options.scenario = fmt::format("{} replicas={} {}", job, layout.replicas, layout.words);
  if (layout.namespaces) {
    int port = 23000;
    for (int rank = 0; rank < layout.workers; ++rank) {
      const int side = rank * 2 / layout.workers;
      options.wrappers.push_back(networks->command(side));
      options.addresses.push_back(fmt::format("{}:{}", TwoNetworks::host(side), port++));
      options.hosts.push_back(fmt::format("side{}", side));
    }
  }
  std::set<std::string> digests;
  for (const auto& outcome : ProcessCluster(options).finish(std::chrono::minutes(5))) {
    const std::size_t at = outcome.text.find("digest ");
    if (!outcome.ok() || at == std::string::npos) {
      std::printf("%s: a worker %s and said\n%s\n", layout.name.c_str(), outcome.how().c_str(),
                  outcome.text.c_str());
      return {};
    }
    digests.insert(outcome.text.substr(at + 7, 16));
  }
  if (digests.size() == 1) return *digests.begin();
  std::printf("%s: the workers have different weights\n", layout.name.c_str());
  return {};
}

std::vector<Layout> layouts_of(int replicas, bool namespaces) {
  std::vector<Layout> all = {
      {fmt::format("{}x1 threads", replicas), replicas, 1},
      {fmt::format("{}x1 sequential", replicas), replicas, 1, Wire::local, "sequential"}};
  for (int workers = 2; workers <= replicas; ++workers) {
    if (replicas % workers != 0) continue;
    const int each = replicas / workers;
    all.push_back({fmt::format("{}x{} processes", each, workers), each, workers});
    all.push_back({fmt::format("{}x{} tuned", each, workers), each, workers, Wire::local, "tuned"});
    all.push_back({fmt::format("{}x{} tcp", each, workers), each, workers, Wire::tcp, "overlap"});
    if (each > 1) {
      all.push_back(
          {fmt::format("{}x{} tcp lanes", each, workers), each, workers, Wire::tcp, "afterwards"});
    }
    if (namespaces) {
      all.push_back({fmt::format("{}x{} namespaces", each, workers), each, workers, Wire::tcp,
                     "overlap bucket=65536", true});
    }
  }
  return all;
}

}  // namespace

int main(int argc, char** argv) try {
  bool quick = false;
  std::string only_job;
  int only_replicas = 0;
  CLI::App app("Trains the same job in every layout and compares the weights.");
  app.add_flag("--quick", quick, "fewer steps, four replicas only");
  app.add_option("--job", only_job, "one job only, e.g. \"model=mlp optimizer=sgd steps=100\"");
  app.add_option("--replicas", only_replicas, "so many replicas only");
  CLI11_PARSE(app, argc, argv);
  std::unique_ptr<TwoNetworks> networks;
  if (quick) {
    std::printf("quick: no network namespaces\n");
  } else if (::geteuid() == 0) {
    try {
      networks = std::make_unique<TwoNetworks>();
    } catch (const std::exception& error) {
      std::printf("no network namespaces here: %s\n", error.what());
    }
  } else {
    std::printf("not root: no network namespaces\n");
  }
  std::vector<std::string> jobs =
      quick ? std::vector<std::string>{"model=cnn optimizer=adam steps=5", "model=small steps=5"}
            : std::vector<std::string>{
                  "model=mlp optimizer=sgd steps=100", "model=mlp optimizer=adam steps=100",
                  "model=cnn optimizer=sgd steps=100", "model=cnn optimizer=adam steps=100"};
  std::vector<int> numbers = quick ? std::vector<int>{4} : std::vector<int>{4, 6};
  if (!only_job.empty()) jobs = {only_job};
  if (only_replicas > 0) numbers = {only_replicas};
  bool equal = true;
  for (const int replicas : numbers) {
    for (const std::string& job : jobs) {
      std::printf("%d replicas, %s\n", replicas, job.c_str());
      std::optional<std::string> first;
      for (const Layout& layout : layouts_of(replicas, networks != nullptr)) {
        const std::optional<std::string> digest = digest_of(layout, job, networks.get());
        if (!first) first = digest;
        const bool same = digest && digest == first;
        equal = equal && same;
        std::printf("  %-16s %s%s\n", layout.name.c_str(), digest.value_or("none").c_str(),
                    same ? "" : "  DIFFERS");
        std::fflush(stdout);
      }
    }
  }
  std::printf(equal ? "same bits in every layout\n" : "NOT the same bits\n");
  return equal ? 0 : 1;
} catch (const std::exception& error) {
  std::fprintf(stderr, "same_bits: %s\n", error.what());
  return 2;
}
