#include "launch/trampoline.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "launch/exit_codes.h"
#include "launch/program.h"

namespace lockstep::tool {

int run_trampoline(const TrampolineOptions& options) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != options.launcher) return kExitSignalled + SIGKILL;
  Program program = find_program(options.program.front());
  if (program.exit_code == 0) {
    std::vector<char*> argv;
    for (const std::string& word : options.program) argv.push_back(const_cast<char*>(word.c_str()));
    argv.push_back(nullptr);
    ::execv(program.path.c_str(), argv.data());
    program = exec_failed(options.program.front(), errno);
  }
  if (options.complain) fmt::print(stderr, "lockstep: {}\n", program.problem);
  return program.exit_code;
}

std::vector<std::string> trampoline_command(const TrampolineOptions& options) {
  // Not by its name: the file may have been replaced meanwhile.
  std::vector<std::string> words = {"/proc/self/exe", "exec", "--launcher",
                                    std::to_string(options.launcher)};
  if (!options.complain) words.emplace_back("--silent");
  words.emplace_back("--");
  words.insert(words.end(), options.program.begin(), options.program.end());
  return words;
}

}  // namespace lockstep::tool
