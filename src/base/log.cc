#include "base/log.h"

#include <pthread.h>
#include <spdlog/pattern_formatter.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "base/env.h"
#include "base/gate.h"
#include "base/mutex.h"
#include "base/thread.h"
#include "base/thread_scheduler.h"

namespace lockstep {
namespace {

constexpr std::size_t kMostQueued = std::size_t{1} << 20;  // bytes of text
constexpr Duration kPatience = std::chrono::milliseconds(100);
constexpr Duration kLastPatience = std::chrono::seconds(1);

struct Line {
  LogLevel level = LogLevel::warning;
  std::string text;
  spdlog::log_clock::time_point at = spdlog::log_clock::now();  // for people to read
};

spdlog::level::level_enum to_spdlog(LogLevel level) noexcept {
  switch (level) {
    case LogLevel::debug:
      return spdlog::level::debug;
    case LogLevel::info:
      return spdlog::level::info;
    case LogLevel::warning:
      return spdlog::level::warn;
    case LogLevel::error:
      return spdlog::level::err;
    case LogLevel::off:
      break;
  }
  return spdlog::level::off;
}

const char* color_of(LogLevel level) noexcept {
  constexpr const char* kColors[] = {"\x1b[36m", "\x1b[32m", "\x1b[33;1m", "\x1b[31;1m"};
  return level < LogLevel::off ? kColors[static_cast<std::size_t>(level)] : "";
}

/// Not through <cstdio> or a sink of spdlog's: exit() may want the lock of stderr, which would be
/// held while a pipe is full.
void write_to_standard_error(const Line& line) {
  const spdlog::details::log_msg message(line.at, {}, "lockstep", to_spdlog(line.level), line.text);
  spdlog::memory_buf_t buffer;
  spdlog::pattern_formatter("[lockstep %H:%M:%S.%e %^%l%$] %v").format(message, buffer);
  std::string text(buffer.data(), buffer.size());
  static const bool terminal = ::isatty(STDERR_FILENO) != 0;
  if (terminal) {
    text.insert(message.color_range_end, "\x1b[m");
    text.insert(message.color_range_start, color_of(line.level));
  }
  for (std::string_view rest = text; !rest.empty();) {
    const ssize_t wrote = ::write(STDERR_FILENO, rest.data(), rest.size());
    if (wrote < 0 && errno != EINTR) return;
    rest.remove_prefix(static_cast<std::size_t>(std::max<ssize_t>(wrote, 0)));
  }
}

/// The lines on their way to the sink. One thread at a time hands them over: whoever finds that
/// nobody does. Lives until the process ends, since `ls-log` may be stuck in the sink.
class Queue {
 public:
  static Queue& instance() {
    static Queue& queue = *new Queue;
    static const AtExit flush_at_exit;
    return queue;
  }

  void write(LogLevel level, std::string_view text);
  void set_sink(LogSink sink);
  void flush();

 private:
  using Sink = std::shared_ptr<const LogSink>;  // null: standard error
  struct AtExit {
    ~AtExit() { flush_log(); }
  };
  struct Next {
    Line line;
    std::uint64_t dropped = 0;  // not 0: there is no line, but so many are missing
    Sink sink;
  };

  Queue() { ::pthread_atfork(before_fork, in_parent, in_child); }

  /// The number of the line, or of the one that tells that it was dropped.
  std::uint64_t push(LogLevel level, std::string_view text);
  void start_writer() REQUIRES(mutex_);
  [[nodiscard]] bool is_empty() const noexcept { return handed_.load() == queued_.load(); }
  /// Hands over what is queued, unless another thread is at it.
  void deliver() noexcept;
  std::optional<Next> take() noexcept;
  static void hand_over(Next& next) noexcept;

  // Between them the calling thread holds the mutex, so that the child finds nothing half done.
  static void before_fork() noexcept LOCKSTEP_THREAD_ANNOTATION(no_thread_safety_analysis) {
    instance().mutex_.lock();
  }
  static void in_parent() noexcept LOCKSTEP_THREAD_ANNOTATION(no_thread_safety_analysis) {
    instance().mutex_.unlock();
  }
  static void in_child() noexcept LOCKSTEP_THREAD_ANNOTATION(no_thread_safety_analysis);

  Mutex mutex_;
  Sink sink_ GUARDED_BY(mutex_);
  std::deque<Line> lines_ GUARDED_BY(mutex_);
  std::size_t bytes_ GUARDED_BY(mutex_) = 0;
  std::uint64_t dropped_ GUARDED_BY(mutex_) = 0;  // behind the last line
  std::unique_ptr<std::jthread> writer_ GUARDED_BY(mutex_);
  std::jthread* parents_writer_ = nullptr;

  std::atomic<bool> has_writer_ = false;
  std::atomic<bool> handing_ = false;
  std::atomic<bool> stuck_ = false;  // somebody has waited in vain for the line at hand
  std::atomic<const LogSink*> called_ = nullptr;
  std::atomic<std::uint64_t> queued_ = 0;
  std::atomic<std::uint64_t> handed_ = 0;
  Gate gate_;  // for the five above
};

void Queue::write(LogLevel level, std::string_view text) {
  const std::uint64_t number = push(level, text);
  const bool simulated = ThreadScheduler::current() != nullptr;
  if (simulated || !has_writer_) {
    // A thread of ours that has got no writer leaves its line to whoever comes.
    if (simulated || !is_own_thread()) deliver();
    return;
  }
  gate_.notify();
  if (is_own_thread() || stuck_) return;
  if (!gate_.wait([&] { return handed_.load() >= number; }, Deadline::after(kPatience))) {
    stuck_ = true;
  }
}

std::uint64_t Queue::push(LogLevel level, std::string_view text) {
  const MutexLock lock(mutex_);
  if (has_own_threads() && !writer_ && ThreadScheduler::current() == nullptr) start_writer();
  if (dropped_ > 0 || (!lines_.empty() && bytes_ + text.size() > kMostQueued)) {
    // Until the queue is empty, so that the line which tells it stands where they are missing.
    if (dropped_++ == 0) ++queued_;
    return queued_;
  }
  lines_.push_back({.level = level, .text = std::string(text)});
  bytes_ += text.size();
  return ++queued_;
}

void Queue::start_writer() {
  try {
    writer_ = std::make_unique<std::jthread>(start_thread(
        "ls-log",
        [this](const std::stop_token& stop) {
          const auto wanted = [this] { return !is_empty() && !handing_.load(); };
          while (gate_.wait(wanted, Deadline::never(), {}, stop)) deliver();
        },
        [](const Status&) {}));
    has_writer_ = true;
  } catch (...) {  // NOLINT(bugprone-empty-catch): the next line tries it again
  }
}

void Queue::deliver() noexcept {
  // Again after the last line: one may have come before others could see that we have ended.
  while (!is_empty() && !handing_.exchange(true)) {
    while (std::optional<Next> next = take()) {
      hand_over(*next);
      stuck_ = false;
      called_ = nullptr;
      ++handed_;
      gate_.notify();
    }
    handing_ = false;
    gate_.notify();
  }
}

std::optional<Queue::Next> Queue::take() noexcept {
  const MutexLock lock(mutex_);
  Next next{.line = {}, .sink = sink_};
  if (!lines_.empty()) {
    next.line = std::move(lines_.front());
    lines_.pop_front();
    bytes_ -= next.line.text.size();
  } else {
    next.dropped = std::exchange(dropped_, 0);
    if (next.dropped == 0) return std::nullopt;
  }
  called_ = sink_.get();
  return next;
}

void Queue::hand_over(Next& next) noexcept {
  try {
    if (next.dropped > 0) {
      next.line.text = fmt::format("{} lines of the log were dropped here: it was not read in time",
                                   next.dropped);
    }
    if (next.sink) {
      (*next.sink)(next.line.level, next.line.text);
    } else {
      write_to_standard_error(next.line);
    }
  } catch (...) {  // NOLINT(bugprone-empty-catch): a broken sink must not end the run
  }
}

void Queue::set_sink(LogSink sink) {
  flush();
  Sink next = sink ? std::make_shared<const LogSink>(std::move(sink)) : nullptr;
  {
    const MutexLock lock(mutex_);
    sink_.swap(next);
  }
  // A caller may destroy what its old sink uses. A sink that does not return is the caller's own.
  if (next) gate_.wait([&] { return called_.load() != next.get(); }, Deadline::never());
}

void Queue::flush() {
  if (!has_writer_) deliver();
  const std::uint64_t last = queued_;
  gate_.wait([&] { return handed_.load() >= last; }, Deadline::after(kLastPatience));
}

void Queue::in_child() noexcept {
  Queue& queue = instance();
  // The parent writes its lines. Its writer is no thread of this process, so nobody can join it.
  queue.lines_.clear();
  queue.bytes_ = 0;
  queue.dropped_ = 0;
  queue.parents_writer_ = queue.writer_.release();
  queue.has_writer_ = false;
  queue.handing_ = false;
  queue.stuck_ = false;
  queue.called_ = nullptr;
  queue.handed_ = queue.queued_.load();
  queue.mutex_.unlock();
}

// The log is one of the two globals of the library (the other is the environment).
std::atomic<LogLevel>& the_level() {
  static std::atomic<LogLevel> level{environment().log_level};
  return level;
}

}  // namespace

void set_log_sink(LogSink sink) { Queue::instance().set_sink(std::move(sink)); }

void set_log_level(LogLevel level) { the_level() = level; }

bool log_enabled(LogLevel level) noexcept { return level >= the_level().load(); }

void write_log(LogLevel level, std::string_view text) noexcept {
  try {
    Queue::instance().write(level, text);
  } catch (...) {  // NOLINT(bugprone-empty-catch): out of memory, and nobody to tell
  }
}

void flush_log() noexcept {
  try {
    Queue::instance().flush();
  } catch (...) {  // NOLINT(bugprone-empty-catch): there is no sink yet
  }
}

}  // namespace lockstep
