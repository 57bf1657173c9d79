// The subcommands of `lockstep`. Each adds its options to the parser and returns what to run if the
// user chose it: a function that gives the exit code (0 good, 1 something failed; launch: that of a
// rank) and throws UsageError for values that make no sense (exit code 2).
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::tool {

struct Command {
  CLI::App* parser = nullptr;  // owned by the application's parser
  std::function<int()> run;
};

/// What stands behind "--", exactly; absent without "--".
using ProgramWords = std::optional<std::vector<std::string>>;

Command add_bench(CLI::App& application);
Command add_data(CLI::App& application);
Command add_doctor(CLI::App& application);
Command add_exec(CLI::App& application, const ProgramWords& program);
Command add_explain(CLI::App& application);
Command add_launch(CLI::App& application, const ProgramWords& program);
Command add_plans(CLI::App& application);
Command add_resolve(CLI::App& application);

}  // namespace lockstep::tool
