#include "bench/train/rows.h"

#include <algorithm>

namespace lockstep::bench::train {

std::vector<Row> all_rows() {
  struct Required {
    const char* net;
    double ddp;
    double independent;
  };
  std::vector<Row> rows;
  for (const Required& required :
       {Required{"mlp", 2.2, 0.90}, Required{"cnn", 1.4, 0.95}, Required{"mlp25m", 1.7, 0.85}}) {
    const std::string net = required.net;
    rows.push_back({net + "_vs_ddp", net, "processes", "ddp", required.ddp});
    rows.push_back(
        {net + "_vs_independent", net, "processes", "independent", required.independent});
    rows.push_back({net + "_vs_solo", net, "processes", "solo"});
    rows.push_back({net + "_threads_vs_solo", net, "threads", "solo"});
    rows.push_back({net + "_threads_vs_independent", net, "threads", "independent"});
    rows.push_back({net + "_threads_vs_processes", net, "threads", "processes"});
    rows.push_back({net + "_vs_single", net, "processes", "single"});
    if (net == "cnn") rows.push_back({net + "_overlap_1gbit", net, "overlap", "no_overlap", 1.10});
    // What is required, without tune_process_memory() on either side: for information.
    rows.push_back({net + "_defaults_vs_ddp", net, "processes_defaults", "ddp"});
    rows.push_back(
        {net + "_defaults_vs_independent", net, "processes_defaults", "independent_defaults"});
    rows.push_back({net + "_threads_defaults_vs_independent", net, "threads_defaults",
                    "independent_defaults"});
    if (net == "cnn") {
      rows.push_back(
          {net + "_defaults_overlap_1gbit", net, "overlap_defaults", "no_overlap_defaults"});
    }
  }
  return rows;
}

RowResult measure_row(const Row& row, Field& field, const RowOptions& options) {
  RowResult result;
  std::string at_work;  // whose fault a failure is
  try {
    const auto steps = [&](const std::string& name, int count) {
      at_work = name;
      field.contestant(name).steps(count);
    };
    steps(row.other, 1);
    steps(row.ours, 3);
    double step = 0;  // the fastest trial: the others were interrupted
    for (int trial = 0; trial < 4; ++trial) {
      const double taken = seconds(Timer::wall, [&] { steps(row.ours, 2); }) / 2;
      step = trial == 0 ? taken : std::min(step, taken);
    }
    result.steps = static_cast<int>(std::clamp(options.repetition_seconds / step, 2.0, 400.0));
    result.parameters = field.contestant(row.ours).parameters();
    result.ratio = paired_ratio(
        options.pairs, [&] { steps(row.ours, result.steps); },
        [&] { steps(row.other, result.steps); });
    result.ratio.ours_seconds /= result.steps;
    result.ratio.other_seconds /= result.steps;
  } catch (const std::exception& error) {
    result.error = at_work + ": " + error.what();
    field.end(at_work);
  }
  return result;
}

}  // namespace lockstep::bench::train
