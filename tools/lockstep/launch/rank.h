// Rank: one started process, its two pipes and what is known about it.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "launch/display.h"
#include "launch/held_lines.h"
#include "launch/last_lines.h"
#include "launch/rank_log.h"
#include "sys/descriptor.h"
#include "sys/proc.h"

namespace lockstep::tool {

class Rank {
 public:
  /// One of the pipes.
  struct Pipe {
    Display::Stream stream;
    std::string prefix;
    sys::Descriptor descriptor;  // invalid once the writers are gone
    HeldLines held = {};
  };

  /// Log and display outlive it.
  Rank(int number, std::unique_ptr<sys::Process> process, Time started, RankLog& log,
       Display& display);

  [[nodiscard]] int number() const noexcept { return number_; }
  [[nodiscard]] sys::Process& process() noexcept { return *process_; }
  [[nodiscard]] Time started() const noexcept { return started_; }
  [[nodiscard]] const LastLines& last_errors() const noexcept { return last_errors_; }
  /// Whether it wrote to standard error, and no more than a few lines of others were shown since.
  [[nodiscard]] bool errors_just_shown() const;
  [[nodiscard]] std::array<Pipe, 2>& pipes() noexcept { return pipes_; }
  [[nodiscard]] bool ended() const noexcept { return status_.has_value(); }
  [[nodiscard]] bool drained() const noexcept;

  /// True when it has just ended.
  bool look();
  [[nodiscard]] const std::optional<sys::ExitStatus>& status() const noexcept { return status_; }

  /// Takes what is in a pipe, at most 64 KiB of it. False if there is nothing.
  bool read(Pipe& pipe, Time now);
  /// Shows the beginnings of lines that have waited enough.
  void show_due(Time now);
  /// Takes what a pipe holds now and no more; what there is of a line is shown.
  void finish(Pipe& pipe, Time now);

 private:
  void close(Pipe& pipe);
  void show(const Pipe& pipe, std::string_view text);

  int number_;
  std::unique_ptr<sys::Process> process_;
  Time started_;
  RankLog& log_;
  Display& display_;
  std::array<Pipe, 2> pipes_;
  LastLines last_errors_;
  std::uint64_t errors_shown_at_ = 0;  // in lines of the display
  std::optional<sys::ExitStatus> status_;
};

}  // namespace lockstep::tool
