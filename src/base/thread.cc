#include "base/thread.h"

#include <fmt/format.h>
#include <pthread.h>

#include <system_error>

namespace lockstep {

void name_this_thread(const std::string& name) noexcept {
  char cut[16] = {};
  name.copy(cut, sizeof(cut) - 1);
  pthread_setname_np(pthread_self(), cut);
}

std::jthread start_thread(std::string name, std::function<void(std::stop_token)> body,
                          std::function<void(const Status&)> on_error) {
  try {
    return std::jthread([name, body = std::move(body),
                         on_error = std::move(on_error)](std::stop_token stop) noexcept {
      name_this_thread(name);
      try {
        body(std::move(stop));
      } catch (...) {
        on_error(Status::from_current_exception());
      }
    });
  } catch (const std::system_error& e) {
    throw SystemError(
        fmt::format("cannot start the thread {}: {}; the limit of processes (ulimit -u, "
                    "pids cgroup) may be reached",
                    name, e.what()));
  }
}

}  // namespace lockstep
