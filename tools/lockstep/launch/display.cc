#include "launch/display.h"

#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <cstring>

#include "base/deadline.h"

namespace lockstep::tool {
namespace {

constexpr Duration kFlushPatience = std::chrono::seconds(2);
constexpr std::array kColors = {36, 33, 32, 35, 34, 96, 93, 92, 95, 94};

bool same_file(int a, int b) {
  struct stat first {};
  struct stat second {};
  return ::fstat(a, &first) == 0 && ::fstat(b, &second) == 0 && first.st_dev == second.st_dev &&
         first.st_ino == second.st_ino;
}

bool colors_wanted() {
  const char* no_color = std::getenv("NO_COLOR");
  const char* terminal = std::getenv("TERM");
  return (no_color == nullptr || *no_color == '\0') &&
         (terminal == nullptr || std::strcmp(terminal, "dumb") != 0);
}

std::string amount(const Dropped& dropped) {
  return fmt::format("{} line{} ({:.1f} MiB)", dropped.lines, dropped.lines == 1 ? "" : "s",
                     static_cast<double>(dropped.bytes) / (1 << 20));
}

}  // namespace

Display::Display(DisplayOptions options) : options_(options), output_(STDOUT_FILENO) {
  options_.color = options_.color && colors_wanted();
  if (!same_file(STDOUT_FILENO, STDERR_FILENO)) errors_.emplace(STDERR_FILENO);
}

std::string Display::prefix(Stream stream, int rank) {
  if (!options_.prefix) return {};
  if (!options_.color || !outlet(stream).terminal()) return fmt::format("[{}] ", rank);
  return fmt::format("\033[{}m[{}]\033[0m ",
                     kColors.at(static_cast<std::size_t>(rank) % kColors.size()), rank);
}

void Display::say_text(std::string_view text) {
  outlet(Stream::errors).put(Outlet::kLauncher, "lockstep: ", std::string(text) + "\n");
}

Outlet& Display::outlet(Stream stream) {
  return stream == Stream::errors && errors_ ? *errors_ : output_;
}

std::vector<Outlet*> Display::outlets() {
  std::vector<Outlet*> all = {&output_};
  if (errors_) all.push_back(&*errors_);
  return all;
}

void Display::flush() {
  for (Outlet* outlet : outlets()) {
    Deadline deadline = Deadline::after(kFlushPatience);
    while (outlet->pending()) {
      if (outlet->write_some()) {
        deadline = Deadline::after(kFlushPatience);
      } else if (deadline.passed()) {
        outlet->drop_queued();
      } else if (outlet->pending()) {
        pollfd ready{.fd = outlet->descriptor(), .events = POLLOUT, .revents = 0};
        ::poll(&ready, 1, 100);
      }
    }
  }
}

void Display::say_dropped() {
  flush();
  for (const Stream stream : {Stream::output, Stream::errors}) {
    if (stream == Stream::errors && !errors_) break;
    const char* name = stream == Stream::output ? "standard output" : "standard error";
    const Outlet& from = outlet(stream);
    const std::string why = from.error() == 0
                                ? fmt::format("{} took them too slowly", name)
                                : fmt::format("{}: {}", name, std::strerror(from.error()));
    for (const auto& [rank, dropped] : from.dropped()) {
      say("{} of rank {} were not shown; {}", amount(dropped), rank, why);
    }
  }
  flush();
}

}  // namespace lockstep::tool
