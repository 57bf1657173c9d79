#include "launch/trampoline.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>

#include "launch/exit_codes.h"
#include "launch/program.h"
#include "sys/descriptor.h"
#include "sys/openblas_kernels.h"

namespace lockstep::tool {
namespace {

void report(const std::string& file, const std::string& problem) {
  if (file.empty()) {
    fmt::print(stderr, "lockstep: {}\n", problem);
    return;
  }
  const sys::Descriptor made(::open(file.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (made.valid() && ::write(made.get(), problem.data(), problem.size()) < 0) return;
}

}  // namespace

int run_trampoline(const TrampolineOptions& options) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != options.launcher) return kExitSignalled + SIGKILL;
  Program program = find_program(options.program.front());
  if (program.exit_code == 0) {
    // The program cannot any more: OpenBLAS reads it when it is loaded.
    if (const std::string kernels = sys::better_openblas_kernels_here(); !kernels.empty()) {
      ::setenv(sys::kOpenblasKernels, kernels.c_str(), 1);
    }
    std::vector<char*> argv;
    for (const std::string& word : options.program) argv.push_back(const_cast<char*>(word.c_str()));
    argv.push_back(nullptr);
    ::execv(program.path.c_str(), argv.data());
    program = exec_failed(options.program.front(), errno);
  }
  report(options.problem_file, program.problem);
  return program.exit_code;
}

std::vector<std::string> trampoline_command(const TrampolineOptions& options) {
  // Not by its name: the file may have been replaced meanwhile.
  std::vector<std::string> words = {"/proc/self/exe", "exec", "--launcher",
                                    std::to_string(options.launcher)};
  if (!options.problem_file.empty()) {
    words.insert(words.end(), {"--problem-file", options.problem_file});
  }
  words.emplace_back("--");
  words.insert(words.end(), options.program.begin(), options.program.end());
  return words;
}

}  // namespace lockstep::tool
