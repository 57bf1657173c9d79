// Outlet: standard output or standard error of the launcher, shared by all ranks.
//
// Text is queued and written when the other side takes it; nothing here ever blocks. A rank may
// have 4 MiB queued. Then the launcher stops reading from it for a second, so that a reader who is
// only slow loses nothing; after that its lines are dropped and counted until half has gone out.
//
// Lines of different ranks are not mixed: a line that one rank has begun and another interrupts is
// ended by a newline.
//
//   outlet.put(rank, "[2] ", line);
//   if (outlet.pending()) poll(outlet.descriptor(), POLLOUT) and outlet.write_some(now);
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "sys/descriptor.h"

namespace lockstep::tool {

/// What was not shown of one rank.
struct Dropped {
  std::uint64_t lines = 0;
  std::uint64_t bytes = 0;
};

class Outlet {
 public:
  static constexpr std::size_t kMostQueued = std::size_t{4} << 20;  // bytes of one source
  static constexpr Duration kPatience = std::chrono::seconds(1);
  static constexpr int kLauncher = -1;  // the source of the launcher's own messages

  /// `fd` stays the caller's and is not switched to non-blocking, others may share it.
  explicit Outlet(int fd);

  /// A line, or a part of one. The prefix goes where a line begins.
  void put(int source, std::string_view prefix, std::string_view text);

  /// Whether to read on from a source; if not, ask again at retry_at() or when something went out.
  [[nodiscard]] bool wants(int source, Time now);
  [[nodiscard]] std::optional<Time> retry_at(int source) const;

  [[nodiscard]] bool pending() const noexcept { return begin_ < queue_.size(); }
  [[nodiscard]] int descriptor() const noexcept;
  /// True if something was written.
  bool write_some();
  /// Gives up what is queued; each source's share counts as dropped.
  void drop_queued();

  [[nodiscard]] bool terminal() const noexcept { return terminal_; }
  /// Why nothing can be written any more; 0 or an errno.
  [[nodiscard]] int error() const noexcept { return error_; }
  [[nodiscard]] std::map<int, Dropped> dropped() const;

 private:
  enum class Way : unsigned char {
    file,      // never blocks for long
    own,       // reopened for ourselves, non-blocking
    socket,    // non-blocking by a flag of each call
    cautious,  // only as much as is certain to fit
  };
  struct Source {
    std::size_t queued = 0;
    std::optional<Time> full_since;
    bool dropping = false;
    Dropped dropped;
  };
  struct Run {  // bytes of the queue that belong to one source
    int source;
    std::size_t bytes;
  };

  void append(int source, std::string_view text);
  long write_bytes(const char* data, std::size_t size) const;

  int fd_;
  Way way_ = Way::file;
  sys::Descriptor own_;
  bool terminal_;
  int error_ = 0;
  std::string queue_;
  std::size_t begin_ = 0;  // of what is not written yet
  std::deque<Run> runs_;
  std::map<int, Source> sources_;
  std::optional<int> unfinished_;  // whose line the last text began
};

}  // namespace lockstep::tool
