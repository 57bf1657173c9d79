// lockstep: the command. Exit codes: 0 good, 1 something failed, 2 the command line is wrong;
// launch has more.
#include <fmt/format.h>

#include <cstdio>
#include <exception>
#include <string>
#include <string_view>
#include <vector>

#include "commands.h"
#include "names.h"

namespace lockstep::tool {
namespace {

constexpr int kFailed = 1;
constexpr int kUsage = 2;

/// What went wrong, whole: the lines after the first say what to do about it.
int complain(const std::string& what) {
  fmt::print(stderr, "lockstep: {}\n", what);
  return kFailed;
}

/// A wrong command line is told in one line, whatever the parser thought of it.
int complain_of_usage(const std::string& what, const std::string& where) {
  fmt::print(stderr, "lockstep: {} (see {} --help)\n", what.substr(0, what.find('\n')), where);
  return kUsage;
}

/// How far the command line names a command: `lockstep`, `lockstep data`, `lockstep data count`.
struct Chosen {
  explicit Chosen(const CLI::App& application) : parser(&application) {
    for (auto parsed = parser->get_subcommands(); !parsed.empty();
         parsed = parser->get_subcommands()) {
      parser = parsed.front();
      words += " " + parser->get_name();
      ++depth;
    }
  }

  /// The commands below it.
  [[nodiscard]] std::string commands() const {
    std::string names;
    for (const CLI::App* command : parser->get_subcommands([](const CLI::App*) { return true; })) {
      names += (names.empty() ? "" : ", ") + command->get_name();
    }
    return names;
  }

  const CLI::App* parser;
  std::string words = "lockstep";
  int depth = 0;
};

/// The words behind "--" of a command that runs a program; they are taken off the command line, the
/// parser must not interpret them.
ProgramWords take_program(int& argc, char** argv) {
  const std::string_view command = argc > 1 ? argv[1] : "";
  if (command != "launch" && command != "exec") return std::nullopt;
  for (int i = 2; i < argc; ++i) {
    if (std::string_view(argv[i]) != "--") continue;
    std::vector<std::string> words(argv + i + 1, argv + argc);
    argc = i;
    return words;
  }
  return std::nullopt;
}

int run(int argc, char** argv) {
  const ProgramWords program = take_program(argc, argv);
  CLI::App application(
      "Synchronous data-parallel training for C++: launch, check, measure and explain.",
      "lockstep");
  application.set_version_flag("--version", "lockstep " LOCKSTEP_VERSION);
  application.require_subcommand(1);
  application.footer(
      "Examples:\n"
      "  lockstep launch -n 4 -- ./train\n"
      "  lockstep bench all_reduce -b 4 -e 64M -f 4 -t 2\n"
      "  lockstep launch -n 4 --no-prefix -- lockstep doctor\n"
      "  lockstep resolve --explain\n"
      "  lockstep explain all_reduce -n 8 -b 4M\n"
      "  lockstep plans\n"
      "  lockstep data inspect train.tfrecord\n"
      "`lockstep <command> --help` has the options and more examples.");
  const Command commands[] = {
      add_launch(application, program), add_bench(application),        add_explain(application),
      add_plans(application),           add_data(application),         add_doctor(application),
      add_resolve(application),         add_exec(application, program)};
  try {
    application.parse(argc, argv);
    for (const Command& command : commands) {
      if (*command.parser) return command.run();
    }
  } catch (const CLI::Success& help_or_version) {
    return application.exit(help_or_version);
  } catch (const CLI::RequiredError& error) {
    const Chosen chosen(application);
    const std::string next = argc > chosen.depth + 1 ? argv[chosen.depth + 1] : "";
    const bool unknown = !chosen.commands().empty() && !next.empty() && next[0] != '-';
    return complain_of_usage(
        unknown ? fmt::format("no command is called \"{}\"; there are {}", next, chosen.commands())
                : error.what(),
        chosen.words);
  } catch (const CLI::ParseError& error) {
    return complain_of_usage(error.what(), Chosen(application).words);
  } catch (const UsageError& error) {
    return complain_of_usage(error.what(), Chosen(application).words);
  }
  return kUsage;
}

}  // namespace
}  // namespace lockstep::tool

int main(int argc, char** argv) {
  try {
    return lockstep::tool::run(argc, argv);
  } catch (const std::exception& error) {
    return lockstep::tool::complain(error.what());
  }
}
