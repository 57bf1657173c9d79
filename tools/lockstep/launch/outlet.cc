#include "launch/outlet.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <limits.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "sys/os_error.h"

namespace lockstep::tool {

Outlet::Outlet(int fd) : fd_(fd), terminal_(::isatty(fd) == 1) {
  struct stat about {};
  if (::fstat(fd, &about) != 0) {
    error_ = errno;
  } else if (S_ISSOCK(about.st_mode)) {
    way_ = Way::socket;
  } else if (S_ISFIFO(about.st_mode) || S_ISCHR(about.st_mode)) {
    // Through /proc the same pipe or terminal is opened anew: its flags are ours alone.
    own_ = sys::Descriptor(::open(fmt::format("/proc/self/fd/{}", fd).c_str(),
                                  O_WRONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY));
    way_ = own_.valid() ? Way::own : Way::cautious;
  }
}

void Outlet::put(int source, std::string_view prefix, std::string_view text) {
  Source& state = sources_[source];
  if (state.queued <= kMostQueued / 2) state.dropping = false;
  if (error_ != 0 || state.dropping) {
    state.dropped.lines += text.ends_with('\n') ? 1 : 0;
    state.dropped.bytes += text.size();
    return;
  }
  if (unfinished_ && *unfinished_ != source && !prefix.empty()) append(source, "\n");
  if (unfinished_ != source) append(source, prefix);
  append(source, text);
  if (text.ends_with('\n')) {
    unfinished_.reset();
  } else {
    unfinished_ = source;
  }
}

void Outlet::append(int source, std::string_view text) {
  queue_ += text;
  sources_[source].queued += text.size();
  if (runs_.empty() || runs_.back().source != source) runs_.push_back({source, 0});
  runs_.back().bytes += text.size();
}

bool Outlet::wants(int source, Time now) {
  Source& state = sources_[source];
  if (state.dropping || error_ != 0) return true;
  if (state.queued < kMostQueued) {
    state.full_since.reset();
    return true;
  }
  if (!state.full_since) state.full_since = now;
  if (now - *state.full_since < kPatience) return false;
  state.full_since.reset();
  state.dropping = true;
  return true;
}

std::optional<Time> Outlet::retry_at(int source) const {
  const auto state = sources_.find(source);
  if (state == sources_.end() || !state->second.full_since) return std::nullopt;
  return *state->second.full_since + kPatience;
}

int Outlet::descriptor() const noexcept { return own_.valid() ? own_.get() : fd_; }

bool Outlet::write_some() {
  constexpr std::size_t kAtOnce = std::size_t{64} << 10;
  const std::size_t most = way_ == Way::cautious ? PIPE_BUF : kAtOnce;
  const std::size_t size = std::min(queue_.size() - begin_, most);
  const long written = write_bytes(queue_.data() + begin_, size);
  if (written < 0) {
    if (errno == EAGAIN || errno == EWOULDBLOCK) return false;
    error_ = errno;
    drop_queued();
    return false;
  }
  auto left = static_cast<std::size_t>(written);
  begin_ += left;
  while (left > 0) {
    const std::size_t part = std::min(left, runs_.front().bytes);
    sources_[runs_.front().source].queued -= part;
    runs_.front().bytes -= part;
    left -= part;
    if (runs_.front().bytes == 0) runs_.pop_front();
  }
  if (begin_ == queue_.size() || begin_ >= kMostQueued) {
    queue_.erase(0, begin_);
    begin_ = 0;
  }
  return written > 0;
}

long Outlet::write_bytes(const char* data, std::size_t size) const {
  if (way_ == Way::cautious) {
    pollfd ready{.fd = fd_, .events = POLLOUT, .revents = 0};
    if (::poll(&ready, 1, 0) != 1) {
      errno = EAGAIN;
      return -1;
    }
  }
  return sys::retry_on_signal([&] {
    return way_ == Way::socket ? ::send(fd_, data, size, MSG_DONTWAIT | MSG_NOSIGNAL)
                               : ::write(descriptor(), data, size);
  });
}

void Outlet::drop_queued() {
  std::size_t at = begin_;
  for (const Run& run : runs_) {
    Source& source = sources_[run.source];
    const auto text = std::string_view(queue_).substr(at, run.bytes);
    source.dropped.lines += static_cast<std::uint64_t>(std::count(text.begin(), text.end(), '\n'));
    source.dropped.bytes += run.bytes;
    source.queued = 0;
    at += run.bytes;
  }
  runs_.clear();
  queue_.clear();
  begin_ = 0;
}

std::map<int, Dropped> Outlet::dropped() const {
  std::map<int, Dropped> all;
  for (const auto& [source, state] : sources_) {
    if (source != kLauncher && state.dropped.bytes > 0) all[source] = state.dropped;
  }
  return all;
}

}  // namespace lockstep::tool
