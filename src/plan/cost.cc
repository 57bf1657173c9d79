#include "plan/cost.h"

#include <fmt/format.h>

#include <algorithm>

#include "plan/form.h"
#include "plan/scan.h"
#include "plan/work.h"

namespace lockstep::plan {
namespace {

// Handling one more message or flag costs this part of a latency: a rank starts several at once.
constexpr double kOverhead = 0.25;
// A byte between two processes of a host is copied into a ring and out again, and the two wait for
// each other: so many times the cost of a byte in memory.
constexpr double kThroughRing = 5;

/// staged.chunk and staged.around_cache.
Status parse_staging(std::string_view key, Scanner& scan, Costs& costs) {
  std::uint64_t value = 0;
  if (!scan.size(value)) return scan.expected("a size in bytes such as 512K, or 0 or 1");
  Staging staging = costs.staging.value_or(Staging{});
  if (key == "staged.chunk") {
    if (value % kStagedUnit != 0 || value == 0 || value > kMostStagedBytes) {
      return scan.expected_instead("a multiple of 4K, 1M at most");
    }
    staging.chunk_bytes = value;
  } else {
    if (value > 1) return scan.expected_instead("0 or 1");
    staging.stores = value == 1 ? SlotStores::around_cache : SlotStores::cached;
  }
  costs.staging = staging;
  return {};
}

Status set_cost(std::string_view key, double value, Scanner& scan, Costs& costs) {
  const auto per_byte = [&](double& out) -> Status {
    if (value <= 0) return scan.expected_instead("a bandwidth above zero, in bytes per second");
    out = 1e6 / value;
    return {};
  };
  if (key == "memory.alpha" || key == "tcp.alpha") {
    if (value < 0) return scan.expected_instead("a time of zero or more, in microseconds");
    (key == "tcp.alpha" ? costs.tcp : costs.memory).alpha_us = value;
    return {};
  }
  if (key == "memory.bandwidth") return per_byte(costs.memory.beta_us_per_byte);
  if (key == "tcp.bandwidth") return per_byte(costs.tcp.beta_us_per_byte);
  return per_byte(costs.gamma_us_per_byte);
}

constexpr std::string_view kKeys[] = {"memory.alpha",       "memory.bandwidth", "tcp.alpha",
                                      "tcp.bandwidth",      "reduce.bandwidth", "staged.chunk",
                                      "staged.around_cache"};

Status parse_cost(std::string_view key, Scanner& scan, Costs& costs) {
  if (key.starts_with("staged.")) return parse_staging(key, scan, costs);
  double value = 0;
  if (!scan.number(value)) return scan.expected("a number");
  return set_cost(key, value, scan, costs);
}

}  // namespace

Status parse_costs(std::string_view text, Costs& costs) {
  Scanner scan("costs", text);
  Costs parsed = costs;
  while (!scan.at_end()) {
    const std::string_view key = scan.word();
    if (std::find(std::begin(kKeys), std::end(kKeys), key) == std::end(kKeys)) {
      return scan.expected_instead(
          "memory.alpha, memory.bandwidth, tcp.alpha, tcp.bandwidth, reduce.bandwidth, "
          "staged.chunk or staged.around_cache");
    }
    if (!scan.accept('=')) return scan.expected("'='");
    if (Status status = parse_cost(key, scan, parsed); !status.ok()) return status;
    if (!scan.at_end() && !scan.accept(',')) return scan.expected("','");
  }
  costs = parsed;
  return {};
}

double estimate(const Algorithm& algorithm, const Request& request, const Layout& layout,
                std::uint64_t element_bytes, Access access, const Costs& costs) {
  const Terms t(request, layout, element_bytes);
  const bool reduces = is_reduction(request.kind);
  // Alone: one pass over memory at most.
  if (t.n == 1) return t.size * (reduces ? t.replicas + 1.0 : 2.0) * costs.gamma_us_per_byte;
  const Work w = algorithm.work(t);
  const double starts = w.rounds + kOverhead * w.messages;
  const double arithmetic = w.reduced * costs.gamma_us_per_byte;
  if (t.hosts > 1) {
    // Bytes inside hosts and between them flow at the same time; the slower one counts.
    const double ring = kThroughRing * costs.memory.beta_us_per_byte;
    return starts * costs.tcp.alpha_us +
           std::max({w.bytes * costs.memory.beta_us_per_byte, w.inside * ring,
                     w.crossing * costs.tcp.beta_us_per_byte}) +
           w.apart * ring + arithmetic;
  }
  const LinkCost& link = access != Access::messages ? costs.memory : costs.tcp;
  // A message through memory that threads share is copied once, with a flag each way; one between
  // processes is copied into a ring and out again.
  double hops = 1;
  if (algorithm.access == Access::messages && access == Access::shared) hops = 2;
  if (algorithm.access == Access::messages && access == Access::slots) hops = kThroughRing;
  return hops * (starts * link.alpha_us + w.bytes * link.beta_us_per_byte) + arithmetic;
}

}  // namespace lockstep::plan
