// Threads of lockstep: named, joined by their owner, and never the end of the process. An exception
// that leaves the body is handed to `on_error` as a Status.
//
//   std::jthread pump = start_thread("ls-pump", [this](std::stop_token stop) { run(stop); },
//                                    [this](const Status& why) { generation_->fail(why); });
#pragma once

#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <thread>

#include "base/status.h"
#include "base/thread_scheduler.h"

namespace lockstep {

/// The name is cut to the 15 characters Linux keeps. Throws SystemError if no thread can be had.
std::jthread start_thread(std::string name, std::function<void(std::stop_token)> body,
                          std::function<void(const Status&)> on_error);

/// A thread of the collective runtime: as start_thread(), or a thread of the simulation to which the
/// calling thread belongs (scheduler.h). Stopped and joined when it is destroyed.
class Thread {
 public:
  Thread(std::string name, std::function<void(const std::stop_token&)> body,
         std::function<void(const Status&)> on_error);
  ~Thread();
  Thread(const Thread&) = delete;
  Thread& operator=(const Thread&) = delete;

  void request_stop() noexcept;
  void join();

 private:
  std::stop_source stop_;  // of a simulated thread
  std::shared_ptr<ThreadScheduler::Task> task_;
  std::jthread thread_;
};

/// Whether start_thread() has started the calling thread, and whether it has started any in this
/// process.
[[nodiscard]] bool is_own_thread() noexcept;
[[nodiscard]] bool has_own_threads() noexcept;

/// For a thread that is about to be pinned: what start_thread() and Thread start on it from now on
/// may run where it may run now, instead of where it is pinned.
void keep_processors_for_new_threads() noexcept;

/// Names the calling thread, for debuggers and /proc.
void name_this_thread(const std::string& name) noexcept;

}  // namespace lockstep
