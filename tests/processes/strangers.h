// Strangers: throws connections at listening ports the way scanners, other programs and attackers
// do: garbage, HTTP, huge lengths, one byte now and then, half a greeting, a wrong key, a recorded
// greeting, or nothing at all.
//
//   Strangers strangers({.targets = {"127.0.0.1:4000"}, .per_second = 2500, .recorded = bytes});
//   strangers.aim({"127.0.0.1:5000"});
//   const int thrown = strangers.stop();
//
// One thread of its own.
#pragma once

#include <atomic>
#include <cstddef>
#include <string>
#include <thread>
#include <vector>

#include "base/mutex.h"

namespace lockstep::processes {

struct StrangersOptions {
  std::vector<std::string> targets;
  double per_second = 2500;
  /// What a rank with the right key once sent.
  std::vector<std::byte> recorded = {};
  /// How one introduces itself that has a wrong key.
  std::string identity = {};
};

class Strangers {
 public:
  explicit Strangers(StrangersOptions options);
  ~Strangers();
  Strangers(const Strangers&) = delete;
  Strangers& operator=(const Strangers&) = delete;

  /// Those who call from now on call here.
  void aim(std::vector<std::string> targets);
  /// How many have called so far.
  [[nodiscard]] int thrown() const noexcept { return thrown_.load(); }
  int stop();

 private:
  void run(const std::stop_token& stop);

  StrangersOptions options_;
  Mutex mutex_;
  std::vector<std::string> targets_ GUARDED_BY(mutex_);
  std::atomic<int> thrown_ = 0;
  std::jthread thread_;
};

/// What a client says in a whole handshake that succeeds.
std::vector<std::byte> record_greeting(const std::string& key, const std::string& identity);

}  // namespace lockstep::processes
