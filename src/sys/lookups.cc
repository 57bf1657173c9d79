#include "sys/lookups.h"

#include <netdb.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <list>
#include <thread>
#include <utility>

#include "base/gate.h"
#include "base/thread.h"

namespace lockstep::sys {

struct Lookups::Pending {
  Gate gate;
  Answer answer;  // ordered by over
  std::atomic<bool> over = false;

  void finish(Answer found) noexcept {
    answer = std::move(found);
    over.store(true, std::memory_order_release);
    gate.notify();
  }
  [[nodiscard]] bool is_over() const noexcept { return over.load(std::memory_order_acquire); }
};

namespace {

/// Threads that ask. Those that are over are joined when the next one starts and when the process
/// ends; it does not wait for those that are stuck.
class Askers {
 public:
  static Askers& all() {
    // Never destroyed: that would join them all.
    static auto* const askers = new Askers;
    static const struct AtEnd {
      ~AtEnd() { askers->join_finished(); }
    } at_end;
    return *askers;
  }
  /// `body` says so when all that may take long is behind it.
  void start(const std::function<void(std::atomic<bool>& over)>& body) {
    join_finished();
    const MutexLock lock(mutex_);
    auto over = std::make_shared<std::atomic<bool>>(false);
    auto thread = start_thread(
        "ls-lookup",
        [body, over](const std::stop_token&) {
          body(*over);
          over->store(true);
        },
        [](const Status&) {});
    threads_.push_back({over, std::move(thread)});
  }

 private:
  void join_finished() {
    const MutexLock lock(mutex_);
    std::erase_if(threads_, [](const Asker& asker) { return asker.over->load(); });
  }

  struct Asker {
    std::shared_ptr<std::atomic<bool>> over;
    std::jthread thread;
  };
  Mutex mutex_;
  std::list<Asker> threads_ GUARDED_BY(mutex_);
};

}  // namespace

Lookups::Lookups(Ask ask) : ask_(std::move(ask)) {}

std::optional<Lookups::Answer> Lookups::find(const std::string& host, Deadline deadline) {
  std::shared_ptr<Pending> pending;
  {
    const MutexLock lock(mutex_);
    auto& known = pending_[host];
    if (!known) {
      known = std::make_shared<Pending>();
      try {
        Askers::all().start([ask = ask_, host, asked = known](std::atomic<bool>& over) {
          Answer answer = ask(host);
          over.store(true);  // first: who has the answer may end the process, which joins us then
          asked->finish(std::move(answer));
        });
      } catch (...) {
        pending_.erase(host);
        throw;
      }
    }
    pending = known;
  }
  if (!pending->gate.wait([&] { return pending->is_over(); }, deadline)) {
    return std::nullopt;
  }
  const MutexLock lock(mutex_);
  // Names are asked for anew each time; only one under way serves several.
  const auto known = pending_.find(host);
  if (known != pending_.end() && known->second == pending) pending_.erase(known);
  return pending->answer;
}

Lookups::Answer Lookups::ask_system(const std::string& host) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  Answer answer;
  answer.error = ::getaddrinfo(host.c_str(), nullptr, &hints, &found);
  if (answer.error == EAI_SYSTEM) answer.system_error = errno;
  if (answer.error != 0) return answer;
  for (const addrinfo* entry = found; entry != nullptr; entry = entry->ai_next) {
    SocketAddress address;
    std::memcpy(&address.storage, entry->ai_addr, entry->ai_addrlen);
    address.size = entry->ai_addrlen;
    const auto known =
        std::any_of(answer.addresses.begin(), answer.addresses.end(),
                    [&](const SocketAddress& other) { return other.same_endpoint(address); });
    if (!known) answer.addresses.push_back(address);
  }
  ::freeaddrinfo(found);
  return answer;
}

}  // namespace lockstep::sys
