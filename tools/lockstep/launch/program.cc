#include "launch/program.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "launch/exit_codes.h"

namespace lockstep::tool {
namespace {

Program not_found(const std::string& problem) { return {"", kExitNotFound, problem}; }
Program not_executable(const std::string& problem) { return {"", kExitNotExecutable, problem}; }

Program look_at(const std::string& path) {
  struct stat about {};
  if (::stat(path.c_str(), &about) != 0) {
    const std::string problem = fmt::format("cannot start {}: {}", path, std::strerror(errno));
    return errno == ENOENT || errno == ENOTDIR ? not_found(problem) : not_executable(problem);
  }
  if (S_ISDIR(about.st_mode)) {
    return not_executable(fmt::format("cannot start {}: it is a directory", path));
  }
  if (::access(path.c_str(), X_OK) != 0) {
    return not_executable(fmt::format("cannot start {}: it is not executable; chmod +x it?", path));
  }
  return {path, 0, ""};
}

}  // namespace

Program find_program(const std::string& name) {
  if (name.find('/') != std::string::npos) return look_at(name);
  const char* variable = std::getenv("PATH");
  std::string_view folders = variable != nullptr ? variable : "/bin:/usr/bin";
  Program best = not_found(fmt::format("cannot start {}: it is not in PATH{}", name,
                                       ::access(name.c_str(), X_OK) == 0 && !name.empty()
                                           ? fmt::format("; did you mean ./{}?", name)
                                           : ""));
  if (name.empty()) return best;
  for (bool more = true; more;) {
    const auto end = folders.find(':');
    const std::string folder(folders.substr(0, end));
    more = end != std::string_view::npos;
    if (more) folders.remove_prefix(end + 1);
    Program found = look_at((folder.empty() ? "." : folder) + "/" + name);
    if (found.exit_code == 0) return found;
    if (found.exit_code == kExitNotExecutable) best = found;
  }
  return best;
}

Program exec_failed(const std::string& name, int error) {
  switch (error) {
    case ENOENT:
      return not_executable(
          fmt::format("cannot start {}: the interpreter or loader it names is not there", name));
    case ENOEXEC:
      return not_executable(
          fmt::format("cannot start {}: no program for this machine, and no script with \"#!\" at "
                      "its beginning",
                      name));
    default:
      return not_executable(fmt::format("cannot start {}: {}", name, std::strerror(error)));
  }
}

}  // namespace lockstep::tool
