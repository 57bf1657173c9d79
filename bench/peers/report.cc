#include "bench/peers/report.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "bench/support/paired_json.h"

namespace lockstep::bench::peers {
namespace {

void print_outcome(const Outcome& outcome, bool ours) {
  if (outcome.seconds.empty()) {
    const std::string reason = outcome.error.empty()
                                   ? "no repetition counts"
                                   : outcome.error.substr(0, outcome.error.find('\n'));
    fmt::print("  {:<32} {}\n", outcome.entry.label(), reason);
    return;
  }
  const double median = quantile(outcome.seconds, 0.5);
  const int digits = median < 100e-6 ? 2 : 0;
  const std::string spread =
      fmt::format("[{:.{}f} - {:.{}f}]", quantile(outcome.seconds, 0.1) * 1e6, digits,
                  quantile(outcome.seconds, 0.9) * 1e6, digits);
  const PairedResult& ratio = outcome.against_ours;
  const std::string ratio_text =
      ratio.pairs == 0 ? (ours ? "" : "-")
                       : fmt::format("{:.2f} [{:.2f} - {:.2f}], {} pairs", ratio.median,
                                     ratio.lower_quartile, ratio.upper_quartile, ratio.pairs);
  fmt::print("  {:<32} {:>11.{}f} {:>20} {:>8.3f} {:>5} {:>5}  {}\n", outcome.entry.label(),
             median * 1e6, digits, spread,
             static_cast<double>(bytes_of(outcome.entry.job)) / median / 1e9,
             outcome.seconds.size(), outcome.dropped, ratio_text);
}

nlohmann::json json_of(const Outcome& outcome) {
  nlohmann::json json = {{"contestant", outcome.entry.label()},
                         {"family", outcome.entry.family()},
                         {"repetitions", outcome.seconds.size()},
                         {"dropped", outcome.dropped}};
  if (!outcome.error.empty()) json["error"] = outcome.error;
  if (!outcome.seconds.empty()) {
    const double median = quantile(outcome.seconds, 0.5);
    json["median_us"] = median * 1e6;
    json["p10_us"] = quantile(outcome.seconds, 0.1) * 1e6;
    json["p90_us"] = quantile(outcome.seconds, 0.9) * 1e6;
    json["gb_per_s"] = static_cast<double>(bytes_of(outcome.entry.job)) / median / 1e9;
  }
  const PairedResult& ratio = outcome.against_ours;
  if (ratio.pairs > 0) {
    json["ratio"] = to_json(ratio);
  }
  return json;
}

}  // namespace

void print_row(const Row& row, const RowResult& result) {
  fmt::print("\n{}\n  {:<32} {:>11} {:>20} {:>8} {:>5} {:>5}  {}\n", row.name, "", "median us",
             "[p10 - p90]", "GB/s", "reps", "drop", "our speed / theirs [quartiles]");
  print_outcome(result.ours, true);
  for (const Outcome& other : result.others) print_outcome(other, false);
}

void print_targets(const Row& row, const RowResult& result, Targets& targets, bool verdict) {
  for (const Requirement& requirement : row.requirements) {
    const Outcome* hardest = result.hardest(requirement.family);
    if (hardest == nullptr) {
      const std::string who =
          result.ours.error.empty() ? requirement.family : result.ours.entry.contestant;
      targets.add(requirement.target, 0, requirement.required, "not measured: no times of " + who);
    } else if (verdict) {
      targets.add(requirement.target, hardest->against_ours, requirement.required);
    } else {
      const PairedResult& ratio = hardest->against_ours;
      targets.add(
          requirement.target, ratio.median, requirement.required,
          fmt::format("no verdict: {} pairs against {}, quartiles {:.2f} to {:.2f}", ratio.pairs,
                      hardest->entry.label(), ratio.lower_quartile, ratio.upper_quartile));
    }
  }
  std::fflush(stdout);
}

nlohmann::json json_of(const Row& row, const RowResult& result) {
  nlohmann::json json = {{"row", row.name},
                         {"bytes", bytes_of(row.ours.job)},
                         {"ours", json_of(result.ours)},
                         {"others", nlohmann::json::array()},
                         {"targets", nlohmann::json::array()}};
  for (const Outcome& other : result.others) json["others"].push_back(json_of(other));
  for (const Requirement& requirement : row.requirements) {
    const Outcome* hardest = result.hardest(requirement.family);
    nlohmann::json target = {{"target", requirement.target}, {"required", requirement.required}};
    if (hardest != nullptr) {
      target["against"] = hardest->entry.label();
      target["measured"] = hardest->against_ours.median;
      target["pairs"] = hardest->against_ours.pairs;
    }
    json["targets"].push_back(std::move(target));
  }
  return json;
}

}  // namespace lockstep::bench::peers
