// The trampoline: what runs as `lockstep exec` between the launcher and a rank's program.
//
// posix_spawn cannot ask the kernel to kill a child with its parent, the child has to do it:
//   1. ask for SIGKILL when the launcher dies,
//   2. look whether it has died already,
//   3. choose kernels of OpenBLAS for a processor that it does not know, unless the user has,
//   4. become the program.
#pragma once

#include <string>
#include <vector>

namespace lockstep::tool {

struct TrampolineOptions {
  int launcher = 0;  // its pid
  /// Where to say why the program cannot be started: a file that the first to have a problem makes.
  /// Empty: standard error.
  std::string problem_file = {};
  std::vector<std::string> program;
};

/// The exit code if the program could not be started: 126 or 127.
int run_trampoline(const TrampolineOptions& options);

/// The command line that runs the options above in a child of this process.
std::vector<std::string> trampoline_command(const TrampolineOptions& options);

}  // namespace lockstep::tool
