#include "launch/rank.h"

#include <unistd.h>

#include <cerrno>
#include <utility>
#include <vector>

#include "sys/os_error.h"

namespace lockstep::tool {

Rank::Rank(int number, std::unique_ptr<sys::Process> process, Time started, RankLog& log,
           Display& display)
    : number_(number),
      process_(std::move(process)),
      started_(started),
      log_(log),
      display_(display),
      pipes_{Pipe{.stream = Display::Stream::output,
                  .prefix = display.prefix(Display::Stream::output, number),
                  .descriptor = process_->take_output()},
             Pipe{.stream = Display::Stream::errors,
                  .prefix = display.prefix(Display::Stream::errors, number),
                  .descriptor = process_->take_errors()}} {}

bool Rank::drained() const noexcept {
  return !pipes_[0].descriptor.valid() && !pipes_[1].descriptor.valid();
}

bool Rank::look() {
  if (ended()) return false;
  status_ = process_->poll();
  return ended();
}

bool Rank::read(Pipe& pipe, Time now) {
  static constexpr std::size_t kAtOnce = std::size_t{64} << 10;
  std::array<char, kAtOnce> bytes;  // NOLINT: filled by read()
  const ssize_t size = sys::retry_on_signal(
      [&] { return ::read(pipe.descriptor.get(), bytes.data(), bytes.size()); });
  if (size < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return false;
  if (size <= 0) {
    close(pipe);
    return false;
  }
  const std::string_view text(bytes.data(), static_cast<std::size_t>(size));
  if (const Status status = log_.write(text); !status.ok()) display_.say_text(status.message());
  pipe.held.add(text, now, [&](std::string_view line) { show(pipe, line); });
  return true;
}

void Rank::show_due(Time now) {
  for (Pipe& pipe : pipes_) {
    if (const auto due = pipe.held.due(); due && *due <= now) {
      pipe.held.flush([&](std::string_view part) { show(pipe, part); });
    }
  }
}

void Rank::finish(Pipe& pipe, Time now) {
  constexpr int kMostReads = 16;  // somebody may still be writing
  for (int i = 0; i < kMostReads && pipe.descriptor.valid() && read(pipe, now); ++i) {
  }
  close(pipe);
}

void Rank::close(Pipe& pipe) {
  pipe.held.flush([&](std::string_view part) { show(pipe, part); });
  pipe.descriptor = {};
}

void Rank::show(const Pipe& pipe, std::string_view text) {
  display_.outlet(pipe.stream).put(number_, pipe.prefix, text);
  display_.count_line();
  if (pipe.stream != Display::Stream::errors) return;
  last_errors_.add(text);
  errors_shown_at_ = display_.lines();
}

bool Rank::errors_just_shown() const {
  constexpr std::uint64_t kStillOnTheScreen = 10;  // lines
  return !last_errors_.lines().empty() &&
         display_.lines() - errors_shown_at_ <= kStillOnTheScreen &&
         display_.outlet(Display::Stream::errors).dropped().count(number_) == 0;
}

}  // namespace lockstep::tool
