// Where a program is, or why it cannot be started: as a shell would look for it.
#pragma once

#include <string>

namespace lockstep::tool {

struct Program {
  std::string path;     // what to execute; empty if it cannot be
  int exit_code = 0;    // 126 or 127 then
  std::string problem;  // in words then
};

/// A name with '/' is a path, others are looked up in PATH.
Program find_program(const std::string& name);

/// For an exec of a program that was found and failed.
Program exec_failed(const std::string& name, int error);

}  // namespace lockstep::tool
