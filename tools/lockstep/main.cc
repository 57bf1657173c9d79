// lockstep: the command. Exit codes: 0 good, 1 something failed, 2 the command line is wrong.
#include <fmt/format.h>

#include <cstdio>
#include <exception>
#include <string>

#include "commands.h"
#include "names.h"

namespace lockstep::tool {
namespace {

constexpr int kFailed = 1;
constexpr int kUsage = 2;

/// Problems are one line each, whatever the parser thought of it.
int complain(const std::string& what, int code, const std::string& where = "lockstep") {
  const std::string line = what.substr(0, what.find('\n'));
  fmt::print(stderr, "lockstep: {}{}\n", line,
             code == kUsage ? fmt::format(" (see {} --help)", where) : "");
  return code;
}

int run(int argc, char** argv) {
  CLI::App application("Synchronous data-parallel training for C++: measure and explain.",
                       "lockstep");
  application.set_version_flag("--version", "lockstep " LOCKSTEP_VERSION);
  application.require_subcommand(1);
  application.footer(
      "Examples:\n"
      "  lockstep bench all_reduce -b 4 -e 64M -f 4 -t 2\n"
      "  lockstep explain all_reduce -n 8 -b 4M\n"
      "  lockstep plans\n"
      "  lockstep data inspect train.tfrecord\n"
      "`lockstep <command> --help` has the options and more examples.");
  const Command commands[] = {add_bench(application), add_explain(application),
                              add_plans(application), add_data(application)};
  const auto chosen = [&] {
    std::string words = "lockstep";
    for (auto parsed = application.get_subcommands(); !parsed.empty();
         parsed = parsed.front()->get_subcommands()) {
      words += " " + parsed.front()->get_name();
    }
    return words;
  };
  try {
    application.parse(argc, argv);
    for (const Command& command : commands) {
      if (*command.parser) return command.run();
    }
  } catch (const CLI::Success& help_or_version) {
    return application.exit(help_or_version);
  } catch (const CLI::RequiredError& error) {
    const std::string first = argc > 1 ? argv[1] : "";
    const bool unknown = application.get_subcommands().empty() && !first.empty() && first[0] != '-';
    return complain(
        unknown ? fmt::format("no command is called \"{}\"; there are bench, explain, plans, data",
                              first)
                : error.what(),
        kUsage, chosen());
  } catch (const CLI::ParseError& error) {
    return complain(error.what(), kUsage, chosen());
  } catch (const UsageError& error) {
    return complain(error.what(), kUsage, chosen());
  }
  return kUsage;
}

}  // namespace
}  // namespace lockstep::tool

int main(int argc, char** argv) {
  using lockstep::tool::complain;
  try {
    return lockstep::tool::run(argc, argv);
  } catch (const std::exception& error) {
    return complain(error.what(), lockstep::tool::kFailed);
  }
}
