// What makes network namespaces: commands of the system, run by tests as root.
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <chrono>
#include <stdexcept>
#include <string>
#include <vector>

#include "sys/posix_proc.h"

namespace lockstep::processes {

inline bool succeeds(const std::vector<std::string>& words) {
  sys::Command command;
  command.argv = words;
  command.output = sys::Command::Output::pipe;
  const auto process = sys::PosixProcesses().spawn(command);
  const auto ended = process->wait(Deadline::after(std::chrono::seconds(10)));
  return ended && ended->success();
}

inline void run(const std::vector<std::string>& words) {
  if (!succeeds(words)) throw std::runtime_error(fmt::format("failed: {}", fmt::join(words, " ")));
}

inline void remove_namespace(const std::string& name) noexcept {
  try {
    (void)succeeds({"ip", "netns", "delete", name});
  } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): there is nothing more to try
  }
}

}  // namespace lockstep::processes
