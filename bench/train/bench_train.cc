// Training steps of two replicas, ours and those of PyTorch's DistributedDataParallel, beside each
// other in one run; docs/performance.md says how to read it. Exits 1 if a target is short.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <string>

#include "bench/peers/process.h"
#include "bench/support/paired_json.h"
#include "bench/train/field.h"
#include "bench/train/rows.h"
#include "sys/openblas_kernels.h"

namespace lockstep::bench::train {
namespace {

struct Arguments {
  std::string only;
  std::string json;
  std::int64_t bucket = 0;
  bool quick = false;
  bool list = false;
};

void describe(CLI::App& app, Arguments& arguments) {
  app.add_option("--only", arguments.only, "only rows whose name matches, e.g. 'cnn|mlp_vs'");
  app.add_option("--json", arguments.json, "a file for the results");
  app.add_option("--bucket", arguments.bucket,
                 "bucket_bytes where gradients are sent during backward (cnn_overlap_1gbit); 0 "
                 "leaves it to the library");
  app.add_flag("--quick", arguments.quick, "fewer pairs: a look, no verdict");
  app.add_flag("--list", arguments.list, "the rows and their targets, without measuring");
  app.footer(
      "Nets mlp (784-512-512-10), cnn (28x28) and mlp25m (784-4096-4096-1280-10); 64 rows and one\n"
      "thread a replica; SGD with momentum 0.9. Rows ..._vs_... are our two processes, unless the\n"
      "name says threads. All programs but PyTorch's call tune_process_memory(), unless the name\n"
      "says defaults. The rows over a shaped line need root.");
}

int list(const std::vector<Row>& rows) {
  for (const Row& row : rows) {
    fmt::print("{:<26} {} against {}", row.name, row.ours, row.other);
    fmt::print("{}\n", row.required ? fmt::format(", at least {}", *row.required) : "");
  }
  return 0;
}

/// Debian's own interpreter first: its PyTorch is the libtorch that we are built with. Empty if
/// none has it.
std::string python_with_torch() {
  for (const char* python : {"/usr/bin/python3", "python3"}) {
    if (has_torch(python)) return python;
  }
  return {};
}

RowOptions options_for(const Row& row, bool quick) {
  RowOptions options;
  if (quick) {
    options.pairs = {.pairs = 5, .attempts = 10};
  } else if ((row.other == "independent" && row.required) || row.name == row.net + "_vs_solo") {
    // Both compute the same and differ by a few percent, which pairs do among each other, too.
    options.pairs = {.pairs = 41, .attempts = 123};
  }
  return options;
}

std::string spread_of(const Row& row, const RowResult& result) {
  if (!result.error.empty()) return "not measured: " + result.error;
  const PairedResult& ratio = result.ratio;
  return fmt::format(
      "{} {:.2f} ms a step, {} {:.2f} ms; ratio {:.3f}, quartiles {:.3f} to {:.3f}, {} pairs of {} "
      "steps ({} dropped), {}",
      row.ours, ratio.ours_seconds * 1e3, row.other, ratio.other_seconds * 1e3, ratio.median,
      ratio.lower_quartile, ratio.upper_quartile, ratio.pairs, result.steps, ratio.dropped,
      to_string(ratio.distance));
}

void print_row(const Row& row, const RowResult& result, Targets& targets, bool verdict) {
  const bool counts = !verdict || result.ratio.pairs >= Targets::kMinPairs;
  const std::string spread = spread_of(row, result) + (verdict ? "" : "; no verdict");
  if (row.required) {
    targets.add(row.name, counts ? result.ratio.median : 0, *row.required, spread);
  } else {
    fmt::print("{}: {}\n", row.name, spread);
  }
  if (row.other == "solo" && result.error.empty()) {
    const double exposed = result.ratio.ours_seconds - result.ratio.other_seconds;
    fmt::print("{}: exposed communication of {}: {:.2f} ms a step, {:.1f} %\n", row.net, row.ours,
               exposed * 1e3, 100 * exposed / result.ratio.ours_seconds);
  }
  std::fflush(stdout);
}

nlohmann::json json_of(const Row& row, const RowResult& result) {
  nlohmann::json json = {{"row", row.name},
                         {"net", row.net},
                         {"parameters", result.parameters},
                         {"ours", row.ours},
                         {"other", row.other}};
  if (row.required) json["required"] = *row.required;
  if (!result.error.empty()) {
    json["error"] = result.error;
    return json;
  }
  const PairedResult& ratio = result.ratio;
  json["ours_ms"] = ratio.ours_seconds * 1e3;
  json["other_ms"] = ratio.other_seconds * 1e3;
  json["steps"] = result.steps;
  json["ratio"] = to_json(ratio);
  return json;
}

/// The field of the row; rows of one net follow each other and share it.
Field& field_for(const Row& row, std::optional<Field>& field, const FieldOptions& options) {
  if (!field || field->net() != row.net) {
    field.reset();
    FieldOptions own = options;
    own.net = row.net;
    field.emplace(std::move(own));
  }
  return *field;
}

int run(const Arguments& arguments, const std::vector<Row>& rows) {
  FieldOptions field_options{
      .net = {},
      .programs = std::filesystem::read_symlink("/proc/self/exe").parent_path(),
      .python = {},
      .bucket_bytes = arguments.bucket};
  if (std::any_of(rows.begin(), rows.end(), [](const Row& row) { return row.other == "ddp"; })) {
    field_options.python = python_with_torch();
    if (field_options.python.empty()) {
      fmt::print(stderr,
                 "bench_train: the rows ..._vs_ddp need PyTorch for Python: install the package "
                 "python3-torch (scripts/install-deps --ddp), or leave them out with --only\n");
      return 1;
    }
  }
  const std::string kernels = blas_kernels();
  fmt::print("OPENBLAS_CORETYPE {}, one thread a replica, batches of 64\n",
             kernels.empty() ? "not set" : kernels);
  Targets targets;
  nlohmann::json json = {
      {"quick", arguments.quick}, {"blas_kernels", kernels}, {"rows", nlohmann::json::array()}};
  std::optional<Field> field;
  std::string announced;
  for (const Row& row : rows) {
    const RowResult result =
        measure_row(row, field_for(row, field, field_options), options_for(row, arguments.quick));
    if (announced != row.net && result.parameters > 0) {
      fmt::print("\n{}: {} parameters\n", announced = row.net, result.parameters);
    }
    print_row(row, result, targets, !arguments.quick);
    json["rows"].push_back(json_of(row, result));
    // After every row: an interrupted run leaves what it has.
    if (!arguments.json.empty()) std::ofstream(arguments.json) << json.dump(2) << '\n';
  }
  if (arguments.quick) fmt::print("\nno verdict: --quick measures too few pairs for one\n");
  return targets.finish();
}

int guarded(const Arguments& arguments) {
  try {
    const std::vector<Row> rows = rows_matching(all_rows(), arguments.only);
    if (arguments.list) return list(rows);
    peers::catch_signals();
    return run(arguments, rows);
  } catch (const peers::Interrupted&) {
    fmt::print(stderr, "interrupted; everything that was started has been ended\n");
    return 130;
  } catch (const std::exception& error) {
    fmt::print(stderr, "bench_train: {}\n", error.what());
    return 2;
  }
}

/// For all contestants alike: OpenBLAS reads it when it is loaded.
void choose_kernels_of_contestants() {
  const std::string kernels = sys::better_openblas_kernels_here();
  if (!kernels.empty()) ::setenv(sys::kOpenblasKernels, kernels.c_str(), 1);
}

int main_of(int argc, char** argv) {
  choose_kernels_of_contestants();
  Arguments arguments;
  CLI::App app("Training steps of two replicas beside PyTorch DDP and unconnected processes.");
  describe(app, arguments);
  CLI11_PARSE(app, argc, argv);
  return guarded(arguments);
}

}  // namespace
}  // namespace lockstep::bench::train

int main(int argc, char** argv) {
  try {
    return lockstep::bench::train::main_of(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "bench_train: %s\n", error.what());
    return 2;
  }
}
