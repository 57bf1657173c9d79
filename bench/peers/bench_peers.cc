// All-reduce of ours and of other libraries, beside each other in one run; docs/performance.md says
// how to read it.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <string>

#include "bench/peers/arena.h"
#include "bench/peers/duel.h"
#include "bench/peers/process.h"
#include "bench/peers/report.h"
#include "bench/peers/rows.h"
#include "bench/support/paired_json.h"

namespace lockstep::bench::peers {
namespace {

constexpr const char* kUsage =
    "usage: bench_peers [--only REGEX] [--quick] [--json FILE] [--ours CONTESTANT] [--list]\n"
    "  --only   only rows whose name matches, e.g. --only 'tcp|wire'\n"
    "  --quick  fewer pairs: a look, no verdict\n"
    "  --ours   another contestant in our place, e.g. mpich, to try out the benchmark itself\n"
    "  --list   the rows and their targets, without measuring\n";

struct Arguments {
  std::string only;
  std::string json;
  std::string ours;
  bool quick = false;
  bool list = false;
  bool help = false;
};

Arguments parse(int argc, char** argv) {
  Arguments arguments;
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    const auto value = [&] {
      if (++i >= argc) throw std::runtime_error(name + " needs a value");
      return std::string(argv[i]);
    };
    if (name == "--only") {
      arguments.only = value();
    } else if (name == "--json") {
      arguments.json = value();
    } else if (name == "--ours") {
      arguments.ours = value();
    } else if (name == "--quick") {
      arguments.quick = true;
    } else if (name == "--list") {
      arguments.list = true;
    } else if (name == "--help") {
      arguments.help = true;
    } else {
      throw std::runtime_error(fmt::format("unknown argument '{}'\n{}", name, kUsage));
    }
  }
  return arguments;
}

int list(const std::vector<Row>& rows) {
  for (const Row& row : rows) {
    fmt::print("{}\n", row.name);
    for (const Requirement& requirement : row.requirements)
      fmt::print("  {} >= {}\n", requirement.target, requirement.required);
  }
  return 0;
}

/// The arena of the row; rows of one place follow each other and share it.
Arena* arena_for(const Row& row, std::optional<Arena>& arena, const std::string& programs) {
  if (!arena || arena->place() != row.place) {
    arena.reset();
    arena.emplace(row.place, programs);
  }
  return &*arena;
}

int run(const Arguments& arguments, const std::vector<Row>& rows) {
  DuelOptions options;
  if (arguments.quick) {
    options.trials = 2;
    options.pairs = 5;
    options.attempts = 10;
    options.limit = 60;
  }
  const std::string programs = std::filesystem::read_symlink("/proc/self/exe").parent_path();
  Targets targets;
  nlohmann::json json = {{"quick", arguments.quick}, {"rows", nlohmann::json::array()}};
  std::optional<Arena> arena;
  for (const Row& row : rows) {
    RowResult result;
    try {
      result = measure_row(row, *arena_for(row, arena, programs), options);
    } catch (const std::exception& error) {
      fmt::print(stderr, "{}: cannot be measured: {}\n", row.name, error.what());
      result.ours = {.entry = row.ours, .error = error.what()};
    }
    print_row(row, result);
    print_targets(row, result, targets, !arguments.quick);
    json["rows"].push_back(json_of(row, result));
    // After every row: an interrupted run leaves what it has.
    if (!arguments.json.empty()) std::ofstream(arguments.json) << json.dump(2) << '\n';
  }
  if (arguments.quick) fmt::print("\nno verdict: --quick measures too few pairs for one\n");
  return targets.finish();
}

int guarded(int argc, char** argv) {
  try {
    const Arguments arguments = parse(argc, argv);
    if (arguments.help) {
      fmt::print("{}", kUsage);
      return 0;
    }
    const std::vector<Row> rows = rows_matching(all_rows(arguments.ours), arguments.only);
    if (arguments.list) return list(rows);
    catch_signals();
    return run(arguments, rows);
  } catch (const Interrupted&) {
    fmt::print(stderr, "interrupted; everything that was started has been ended\n");
    return 130;
  } catch (const std::exception& error) {
    fmt::print(stderr, "bench_peers: {}\n", error.what());
    return 2;
  }
}

}  // namespace
}  // namespace lockstep::bench::peers

int main(int argc, char** argv) { return lockstep::bench::peers::guarded(argc, argv); }
