// lockstep doctor: why ranks do not find each other, or are slow.
#include <fmt/format.h>

#include <chrono>
#include <memory>

#include "commands.h"
#include "doctor/diagnosis_text.h"
#include "doctor/examination.h"
#include "usage_error.h"

namespace lockstep::tool {
namespace {

constexpr double kLongestWait = 86'400;  // seconds

struct Options {
  double join_timeout = 30;
  bool no_join = false;
  bool json = false;
};

int run(const Options& options) {
  if (!(options.join_timeout > 0 && options.join_timeout <= kLongestWait)) {
    throw UsageError(fmt::format("--join-timeout is {}; it must be above 0 and at most {} seconds",
                                 options.join_timeout, kLongestWait));
  }
  const auto timeout = std::chrono::duration_cast<std::chrono::nanoseconds>(
      std::chrono::duration<double>(options.join_timeout));
  const Diagnosis diagnosis =
      examine({.version = LOCKSTEP_VERSION, .joins = !options.no_join, .timeout = timeout});
  if (!diagnosis.joined || diagnosis.rank == 0) {
    fmt::print("{}", options.json ? diagnosis_json(diagnosis) : diagnosis_text(diagnosis));
  }
  return has_problem(diagnosis.findings) ? 1 : 0;
}

}  // namespace

Command add_doctor(CLI::App& application) {
  const auto options = std::make_shared<Options>();
  CLI::App* parser = application.add_subcommand(
      "doctor", "Check what ranks need to find each other, then measure every pair");
  parser
      ->add_option("--join-timeout", options->join_timeout,
                   "How long ranks may take to reach each other, and again to join")
      ->type_name("SECONDS")
      ->capture_default_str();
  parser->add_flag("--no-join", options->no_join, "What can be seen without the other ranks");
  parser->add_flag("--json", options->json, "The same as JSON");
  parser->footer(
      "Start it as the program would be, on every host with the same environment. Rank 0 prints\n"
      "what all ranks found; if they do not come together, each prints its own.\n"
      "Exit code 1 if there is a problem.\n"
      "Examples:\n"
      "  lockstep doctor\n"
      "  lockstep launch -n 4 --no-prefix -- lockstep doctor\n"
      "  lockstep launch -n 2 --hosts node1,node2 --key-file key -- lockstep doctor "
      "--join-timeout 10");
  return {parser, [options] { return run(*options); }};
}

}  // namespace lockstep::tool
