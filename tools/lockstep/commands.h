// The subcommands of `lockstep`. Each adds its options to the parser and returns what to run if the
// user chose it: a function that gives the exit code (0 good, 1 something failed) and throws
// UsageError for values that make no sense (exit code 2).
#pragma once

#include <CLI/CLI.hpp>
#include <functional>

namespace lockstep::tool {

struct Command {
  CLI::App* parser = nullptr;  // owned by the application's parser
  std::function<int()> run;
};

Command add_bench(CLI::App& application);
Command add_data(CLI::App& application);
Command add_explain(CLI::App& application);
Command add_plans(CLI::App& application);

}  // namespace lockstep::tool
