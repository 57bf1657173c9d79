#include "doctor/diagnosis_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

namespace lockstep::tool {
namespace {

struct Shared {
  Finding finding;
  std::vector<int> ranks;
};

/// Findings that differ in nothing but the rank, in the order of their first.
std::vector<Shared> merged(const Findings& findings) {
  std::vector<Shared> all;
  for (const Finding& finding : findings) {
    const auto same = std::find_if(all.begin(), all.end(), [&](const Shared& one) {
      Finding other = one.finding;
      other.rank = finding.rank;
      return other == finding;
    });
    if (same == all.end()) {
      all.push_back({finding, {finding.rank}});
    } else {
      same->ranks.push_back(finding.rank);
    }
  }
  return all;
}

std::string who(const std::vector<int>& ranks, int size) {
  if (static_cast<int>(ranks.size()) == size) return size == 1 ? "this process" : "all ranks";
  return fmt::format("rank {}", fmt::join(ranks, ", "));
}

using Value = double Pair::*;

std::string matrix(const Diagnosis& diagnosis, Value value) {
  std::map<std::pair<int, int>, double> cells;
  for (const Pair& pair : diagnosis.pairs) {
    cells[{pair.a, pair.b}] = cells[{pair.b, pair.a}] = pair.*value;
  }
  std::string text = fmt::format("{:>6}", "");
  for (int b = 0; b < diagnosis.size; ++b) text += fmt::format("{:>9}", b);
  for (int a = 0; a < diagnosis.size; ++a) {
    text += fmt::format("\n{:>6}", a);
    for (int b = 0; b < diagnosis.size; ++b) {
      const auto cell = cells.find({a, b});
      text +=
          cell == cells.end() ? fmt::format("{:>9}", "-") : fmt::format("{:>9.2f}", cell->second);
    }
  }
  return text + "\n";
}

std::string transports(const std::vector<Pair>& pairs) {
  std::map<std::string, std::vector<std::string>> by_name;
  for (const Pair& pair : pairs) {
    by_name[pair.transport].push_back(fmt::format("{}-{}", pair.a, pair.b));
  }
  std::string text;
  for (const auto& [name, list] : by_name) {
    text += fmt::format("  {}: {}\n", name,
                        by_name.size() == 1 ? "all" : fmt::format("{}", fmt::join(list, " ")));
  }
  return text;
}

/// What plan::parse_costs reads: the middle of the pairs that are not on one host; empty if there
/// are none. (Messages of one host go through rings, which say nothing of memory that ranks share.)
std::string costs(const std::vector<Pair>& pairs) {
  std::vector<double> latencies;
  std::vector<double> bandwidths;
  for (const Pair& pair : pairs) {
    if (pair.transport == "shared memory") continue;
    latencies.push_back(pair.latency);
    bandwidths.push_back(pair.bandwidth);
  }
  if (latencies.empty()) return {};
  const auto middle = [](std::vector<double>& values) {
    const auto at = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
    std::nth_element(values.begin(), at, values.end());
    return *at;
  };
  return fmt::format("tcp.alpha={:.3g},tcp.bandwidth={:.3g}", middle(latencies),
                     middle(bandwidths) * 1e9);
}

}  // namespace

std::string diagnosis_text(const Diagnosis& diagnosis) {
  std::string text;
  int problems = 0;
  int warnings = 0;
  for (const Shared& shared : merged(diagnosis.findings)) {
    const Finding& finding = shared.finding;
    problems += finding.verdict == Verdict::problem ? 1 : 0;
    warnings += finding.verdict == Verdict::warning ? 1 : 0;
    std::string what = finding.text;
    std::replace(what.begin(), what.end(), '\n', ' ');
    text += fmt::format("{:<8} {:<8} {}: {}{}{}\n", to_string(finding.verdict), finding.check,
                        who(shared.ranks, diagnosis.size), what, finding.advice.empty() ? "" : "; ",
                        finding.advice);
  }
  if (!diagnosis.pairs.empty()) {
    text += "\npairs of ranks by transport\n" + transports(diagnosis.pairs);
    text += "latency in microseconds: half a round trip of 8 bytes\n" +
            matrix(diagnosis, &Pair::latency);
    text += "bandwidth in GB/s: messages of 1 MiB, one way at a time\n" +
            matrix(diagnosis, &Pair::bandwidth);
    if (const std::string figures = costs(diagnosis.pairs); !figures.empty()) {
      text += fmt::format("to choose algorithms by these: LOCKSTEP_COSTS={}\n", figures);
    }
  }
  return text + fmt::format("{} problem{}, {} warning{}\n", problems, problems == 1 ? "" : "s",
                            warnings, warnings == 1 ? "" : "s");
}

std::string diagnosis_json(const Diagnosis& diagnosis) {
  nlohmann::json checks = nlohmann::json::array();
  for (const Finding& finding : diagnosis.findings) {
    checks.push_back({{"rank", finding.rank},
                      {"check", finding.check},
                      {"verdict", to_string(finding.verdict)},
                      {"text", finding.text},
                      {"advice", finding.advice}});
  }
  nlohmann::json pairs = nlohmann::json::array();
  for (const Pair& pair : diagnosis.pairs) {
    pairs.push_back({{"ranks", {pair.a, pair.b}},
                     {"transport", pair.transport},
                     {"latency_us", pair.latency},
                     {"bandwidth_gb_per_s", pair.bandwidth}});
  }
  const nlohmann::json document = {
      {"rank", diagnosis.rank},      {"size", diagnosis.size},
      {"joined", diagnosis.joined},  {"transport", diagnosis.transport},
      {"checks", std::move(checks)}, {"pairs", std::move(pairs)}};
  return document.dump(2) + "\n";
}

}  // namespace lockstep::tool
