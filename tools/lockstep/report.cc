#include "report.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string_view>
#include <thread>

#include "names.h"

namespace lockstep::tool {
namespace {

/// What the kernel calls this processor; empty where it does not say.
std::string processor() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string text; std::getline(file, text);) {
    if (!text.starts_with("model name")) continue;
    const std::size_t colon = text.find(": ");
    if (colon != std::string::npos) return text.substr(colon + 2);
  }
  return {};
}

unsigned cores() { return std::thread::hardware_concurrency(); }

/// Bytes per microsecond are megabytes per second.
double algorithm_bandwidth(const Trial& trial, const Timing& timing) {
  const double median = timing.median();
  return median > 0 ? static_cast<double>(trial.shape.bytes) / median / 1e3 : 0;
}

double bus_bandwidth(const Trial& trial, const Timing& timing) {
  return algorithm_bandwidth(trial, timing) * bus_factor(trial.kind, trial.ranks);
}

/// A time in microseconds with the digits that mean something.
std::string digits(double microseconds) {
  return fmt::format("{:.{}f}", microseconds, microseconds < 100 ? 2 : microseconds < 1e4 ? 1 : 0);
}

std::string redop(const Trial& trial) {
  return reduces(trial.kind) ? std::string(to_string(trial.op)) : "none";
}

std::string ranks_text(const Trial& trial) {
  if (trial.ground.hosts == 0) return "ranks as threads of one process";
  return fmt::format("ranks as processes on {} host{} over {}", trial.ground.hosts,
                     trial.ground.hosts == 1 ? "" : "s", trial.ground.transport);
}

std::string_view memory_text(const Trial& trial) {
  return trial.memory == Owner::session ? "memory of the session" : "own memory";
}

std::string_view time_text(const Trial& trial) {
  if (trial.ground.hosts > 1) return "the longest of the ranks' own times after a barrier";
  return "from the first rank past a barrier to the last rank's end";
}

std::string_view wire_name(const Trial& trial) {
  switch (trial.wire) {
    case coll::WireType::same:
      break;
    case coll::WireType::bf16:
      return "bf16";
    case coll::WireType::f16:
      return "f16";
  }
  return "same";
}

std::string wire_text(const Trial& trial) {
  if (trial.wire == coll::WireType::same) return {};
  return fmt::format(", {} on the wire", wire_name(trial));
}

int root(const Trial& trial) { return has_root(trial.kind) ? trial.root : -1; }

constexpr std::string_view kSection = "{:>10} {:>19} {:>7} {:>7} {:>6}";

std::string section(const Trial& trial, const std::optional<Timing>& timing) {
  if (!timing) return fmt::format(fmt::runtime(kSection), "-", "-", "-", "-", "-");
  const bool moves = trial.kind != plan::Kind::barrier;
  const auto bandwidth = [&](double value) { return moves ? fmt::format("{:.2f}", value) : "-"; };
  return fmt::format(
      fmt::runtime(kSection), digits(timing->median()),
      fmt::format("{}..{}", digits(timing->quantile(0.1)), digits(timing->quantile(0.9))),
      bandwidth(algorithm_bandwidth(trial, *timing)), bandwidth(bus_bandwidth(trial, *timing)),
      trial.checking == Checking::on ? std::to_string(timing->wrong) : "N/A");
}

const std::string& algorithm(const Row& row) {
  return row.out_of_place ? row.out_of_place->algorithm : row.in_place->algorithm;
}

nlohmann::json json_of(const Trial& trial, const Timing& timing) {
  nlohmann::json json = {{"time_us", timing.median()},
                         {"min_us", timing.quantile(0)},
                         {"p10_us", timing.quantile(0.1)},
                         {"p90_us", timing.quantile(0.9)},
                         {"max_us", timing.quantile(1)},
                         {"iterations_us", timing.microseconds},
                         {"algbw_gb_per_s", algorithm_bandwidth(trial, timing)},
                         {"busbw_gb_per_s", bus_bandwidth(trial, timing)},
                         {"algorithm", timing.algorithm}};
  if (trial.checking == Checking::on) json["wrong"] = timing.wrong;
  return json;
}

}  // namespace

std::uint64_t Row::wrong() const {
  return (out_of_place ? out_of_place->wrong : 0) + (in_place ? in_place->wrong : 0);
}

std::string head(const Trial& trial) {
  std::string text = fmt::format(
      "# {}: {} {}, {}{}, {} cores{}{}; {} iterations after {} warm-ups\n"
      "# time: median, {}; buffers are rewritten before each iteration\n",
      plan::to_string(trial.kind), trial.ranks, ranks_text(trial), memory_text(trial),
      wire_text(trial), cores(), processor().empty() ? "" : ", ", processor(), trial.iterations,
      trial.warmups, time_text(trial));
  const std::string names =
      fmt::format(fmt::runtime(kSection), "time", "p10..p90", "algbw", "busbw", "#wrong");
  const std::string units =
      fmt::format(fmt::runtime(kSection), "(us)", "(us)", "(GB/s)", "(GB/s)", "");
  constexpr std::string_view kLeft = "#{:>12} {:>12} {:>11} {:>8} {:>5} ";
  text += fmt::format(fmt::runtime(kLeft), "", "", "", "", "");
  text += fmt::format("{:^53}  {:^53}\n", "out-of-place", "in-place");
  text += fmt::format(fmt::runtime(kLeft), "size", "count", "type", "redop", "root");
  text += fmt::format("{}  {}  algorithm\n", names, names);
  text += fmt::format(fmt::runtime(kLeft), "(B)", "(elements)", "", "", "");
  text += fmt::format("{}  {}\n", units, units);
  return text;
}

std::string line(const Row& row) {
  const Trial& trial = row.trial;
  return fmt::format(" {:>12} {:>12} {:>11} {:>8} {:>5} {}  {}  {}\n", trial.shape.bytes,
                     trial.shape.count, to_string(trial.dtype), redop(trial), root(trial),
                     section(trial, row.out_of_place), section(trial, row.in_place),
                     algorithm(row));
}

std::string summary(const std::vector<Row>& rows) {
  std::uint64_t wrong = 0;
  bool checked = false;
  for (const Row& row : rows) {
    wrong += row.wrong();
    checked = checked || row.trial.checking == Checking::on;
  }
  if (!checked) return "# results were not checked (-c 0)\n";
  return fmt::format("# wrong elements: {} {}\n", wrong, wrong == 0 ? "OK" : "FAILED");
}

void write_json(const std::string& path, const std::vector<Row>& rows) {
  nlohmann::json list = nlohmann::json::array();
  for (const Row& row : rows) {
    const Trial& trial = row.trial;
    nlohmann::json entry = {{"collective", plan::to_string(trial.kind)},
                            {"size", trial.shape.bytes},
                            {"count", trial.shape.count},
                            {"type", to_string(trial.dtype)},
                            {"redop", redop(trial)},
                            {"root", root(trial)},
                            {"ranks", trial.ranks},
                            {"hosts", std::max(trial.ground.hosts, 1)},
                            {"transport", trial.ground.transport},
                            {"memory", trial.memory == Owner::session ? "session" : "own"},
                            {"iterations", trial.iterations},
                            {"warmups", trial.warmups},
                            {"check", trial.checking == Checking::on},
                            {"order", trial.order == coll::SumOrder::any ? "any" : "fixed_tree"},
                            {"wire", wire_name(trial)},
                            {"algorithms", trial.algorithms}};
    if (row.out_of_place) entry["out_of_place"] = json_of(trial, *row.out_of_place);
    if (row.in_place) entry["in_place"] = json_of(trial, *row.in_place);
    list.push_back(std::move(entry));
  }
  const nlohmann::json document = {{"version", LOCKSTEP_VERSION},
                                   {"machine", {{"cores", cores()}, {"processor", processor()}}},
                                   {"rows", std::move(list)}};
  std::ofstream file(path);
  file << document.dump(2) << '\n';
  file.flush();
  if (!file) throw std::runtime_error(fmt::format("cannot write {}", path));
}

}  // namespace lockstep::tool
