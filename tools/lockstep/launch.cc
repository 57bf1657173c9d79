// lockstep launch: a program as the ranks of this host. lockstep exec: what it starts them through.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <fstream>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "commands.h"
#include "launch/hosts.h"
#include "launch/keeper.h"
#include "launch/launcher.h"
#include "launch/trampoline.h"
#include "usage_error.h"

namespace lockstep::tool {
namespace {

constexpr int kMaxPort = 65'535;
constexpr double kLongestWait = 86'400;  // seconds

struct Options {
  std::optional<int> ranks;
  std::string hosts;
  std::string hostfile;
  std::optional<int> rank_host;
  std::string bind;
  std::optional<int> port_base;
  int max_restarts = 3;
  std::string on_failure = "stop";
  std::string log_dir;
  bool no_color = false;
  bool no_prefix = false;
  double grace = 30;
  double settle = 5;
  std::string key_file;
  bool insecure = false;
  bool plaintext_data = false;
};

void require_range(const char* option, int value, int low, int high) {
  if (value < low || value > high) {
    throw UsageError(fmt::format("{} is {}; it must be from {} to {}", option, value, low, high));
  }
}

Duration seconds(const char* option, double value) {
  if (!(value >= 0 && value <= kLongestWait)) {
    throw UsageError(
        fmt::format("{} is {}; it must be from 0 to {} seconds", option, value, kLongestWait));
  }
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(value));
}

std::string contents(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  if (!file) throw UsageError(fmt::format("--hostfile: cannot read {}", path));
  return text.str();
}

std::string own_hostname() {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0) return {};
  return name.data();
}

std::vector<Host> all_hosts(const Options& options) {
  if (options.ranks) require_range("-n", *options.ranks, 1, kMaxRanks);
  if (!options.hostfile.empty()) {
    if (!options.hosts.empty()) throw UsageError("--hosts and --hostfile exclude each other");
    return parse_hostfile(contents(options.hostfile), options.hostfile, options.ranks);
  }
  if (!options.ranks) throw UsageError("-n is required: the number of ranks");
  if (!options.hosts.empty()) return parse_hosts(options.hosts, *options.ranks);
  return {{"localhost", *options.ranks}};
}

Placement placement_of(const Options& options) {
  Placement placement{.hosts = all_hosts(options)};
  const int count = static_cast<int>(placement.hosts.size());
  if (options.rank_host) {
    if (options.hosts.empty() && options.hostfile.empty()) {
      throw UsageError("--rank-host needs --hosts or --hostfile");
    }
    require_range("--rank-host", *options.rank_host, 0, count - 1);
    placement.here = *options.rank_host;
  } else if (count > 1) {
    const auto found = find_host(placement.hosts, own_hostname());
    if (!found) {
      throw UsageError(
          fmt::format("which of the {} hosts is this one? --rank-host says it, from 0 "
                      "(none is called {})",
                      count, own_hostname()));
    }
    placement.here = *found;
  }
  return placement;
}

LaunchOptions checked(const Options& options, const std::vector<std::string>& program) {
  LaunchOptions launch{.placement = placement_of(options),
                       .bind = options.bind,
                       .port_base = options.port_base,
                       .key_file = options.key_file,
                       .insecure = options.insecure,
                       .plaintext_data = options.plaintext_data,
                       .settle = seconds("--settle", options.settle),
                       .grace = seconds("--grace", options.grace),
                       .log_dir = options.log_dir,
                       .display = {.prefix = !options.no_prefix, .color = !options.no_color},
                       .program = program};
  if (options.bind.find_first_of(", \t\n") != std::string::npos) {
    throw UsageError(
        fmt::format("--bind is \"{}\"; it must be one address or host name, without a "
                    "port",
                    options.bind));
  }
  int most = 0;  // ranks of a host
  for (const Host& host : launch.placement.hosts) most = std::max(most, host.slots);
  if (options.port_base) require_range("--port-base", *options.port_base, 1, kMaxPort - most + 1);
  require_range("--max-restarts", options.max_restarts, 0, 1'000'000);
  launch.max_restarts = options.max_restarts;
  if (options.on_failure != "stop" && options.on_failure != "restart") {
    throw UsageError(
        fmt::format("--on-failure is \"{}\"; it must be stop or restart", options.on_failure));
  }
  if (options.on_failure == "restart") launch.on_failure = LaunchOptions::OnFailure::restart;
  check_key(launch);
  return launch;
}

/// What the parser did not know: the program without "--" before it, or an option.
void refuse_extras(const CLI::App& parser) {
  for (const std::string& word : parser.remaining()) {
    if (word.starts_with("-")) throw UsageError(fmt::format("there is no option {}", word));
    throw UsageError(fmt::format("\"{}\": write -- before the program and its arguments", word));
  }
}

}  // namespace

Command add_launch(CLI::App& application, const ProgramWords& program) {
  const auto options = std::make_shared<Options>();
  CLI::App* parser =
      application.add_subcommand("launch", "Run a program as several ranks on this host");
  parser->allow_extras();
  parser->add_option("-n,--ranks", options->ranks, "Ranks of each host")->type_name("N");
  parser->add_option("--hosts", options->hosts, "All hosts of the run, with commas between them")
      ->type_name("HOST,...");
  parser
      ->add_option("--hostfile", options->hostfile,
                   "All hosts of the run, a line \"host slots=N\" each")
      ->type_name("FILE");
  parser
      ->add_option("--rank-host", options->rank_host,
                   "Which of the hosts this one is, from 0; else found by its name")
      ->type_name("I");
  parser->add_option("--bind", options->bind, "Address that ranks listen on")->type_name("ADDRESS");
  parser
      ->add_option("--port-base", options->port_base,
                   fmt::format("Port of the first rank of a host (several hosts: {}; one: free "
                               "ports)",
                               kDefaultPortBase))
      ->type_name("PORT");
  parser->add_option("--on-failure", options->on_failure, "stop, or restart all ranks")
      ->type_name("")
      ->capture_default_str();
  parser
      ->add_option("--max-restarts", options->max_restarts,
                   "With --on-failure restart: how often within ten minutes")
      ->type_name("N")
      ->capture_default_str();
  parser
      ->add_option("--settle", options->settle,
                   "How long the others may go on after one has failed")
      ->type_name("SECONDS")
      ->capture_default_str();
  parser
      ->add_option("--grace", options->grace,
                   "How long ranks may take to end when asked to, before they are killed")
      ->type_name("SECONDS")
      ->capture_default_str();
  parser->add_option("--log-dir", options->log_dir, "Write DIR/rank-<r>.log too")->type_name("DIR");
  parser->add_flag("--no-prefix", options->no_prefix, "Lines without \"[rank] \" before them");
  parser->add_flag("--no-color", options->no_color, "No colors, even on a terminal");
  parser->add_option("--key-file", options->key_file, "The key of the run, the same on all hosts")
      ->type_name("FILE");
  parser->add_flag("--insecure", options->insecure, "Several hosts without a key");
  parser->add_flag("--plaintext-data", options->plaintext_data,
                   "Authenticate, but do not encrypt data between hosts");
  parser->footer(
      "The program and its arguments stand behind --, and reach the ranks exactly as they are.\n"
      "Standard input of every rank is empty. The exit code is that of the rank that failed "
      "first,\n"
      "128 + N if signal N killed it; 126 or 127 if the program cannot be started.\n"
      "Examples:\n"
      "  lockstep launch -n 4 -- ./train --epochs 10\n"
      "  lockstep launch -n 4 --on-failure restart --log-dir logs -- ./train\n"
      "  lockstep launch -n 2 --hosts node1,node2 --rank-host 0 --key-file key -- ./train");
  return {parser, [options, program, parser] {
            refuse_extras(*parser);
            if (!program) throw UsageError("no program: write it and its arguments behind --");
            if (program->empty()) throw UsageError("no program behind --");
            return launch(checked(*options, *program));
          }};
}

Command add_exec(CLI::App& application, const ProgramWords& program) {
  const auto options = std::make_shared<TrampolineOptions>();
  CLI::App* parser =
      application.add_subcommand("exec", "Become a program that is killed with its launcher");
  parser->group("");  // for `launch`, not for users
  parser->allow_extras();
  parser->add_option("--launcher", options->launcher, "Process id of the launcher")->required();
  parser
      ->add_option("--problem-file", options->problem_file,
                   "Where to say why the program cannot be started")
      ->type_name("FILE");
  const auto keep = std::make_shared<std::string>();
  parser->add_option("--keep", *keep, "No program: tidy up when the launcher has died")
      ->type_name("DIR");
  parser->footer("Examples:\n  lockstep exec --launcher $$ -- ./train");
  return {parser, [options, keep, program, parser] {
            refuse_extras(*parser);
            if (!keep->empty()) {
              return run_keeper({.launcher = options->launcher, .directory = *keep});
            }
            if (!program || program->empty()) throw UsageError("no program behind --");
            options->program = *program;
            return run_trampoline(*options);
          }};
}

}  // namespace lockstep::tool
