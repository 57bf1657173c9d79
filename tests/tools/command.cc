#include "tests/tools/command.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>

namespace lockstep::tool {

TemporaryFile::TemporaryFile(const std::string& name)
    : path_(fmt::format("{}lockstep-{}-{}", testing::TempDir(), getpid(), name)) {}

TemporaryFile::~TemporaryFile() { std::remove(path_.c_str()); }

std::string TemporaryFile::text() const {
  std::ostringstream text;
  text << std::ifstream(path_).rdbuf();
  return text.str();
}

Result lockstep_command(const std::string& arguments) {
  const TemporaryFile out("out");
  const TemporaryFile err("err");
  const std::string command =
      fmt::format("'{}' {} >'{}' 2>'{}'", LOCKSTEP_COMMAND, arguments, out.path(), err.path());
  const int status = std::system(command.c_str());  // NOLINT(cert-env33-c): the point of the test
  Result result;
  if (WIFEXITED(status)) result.code = WEXITSTATUS(status);
  result.out = out.text();
  result.err = err.text();
  return result;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

}  // namespace lockstep::tool
