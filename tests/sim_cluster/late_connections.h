// LateConnections: control connections that ranks open among themselves when others have left, over
// a simulated network.
#pragma once

#include <fmt/format.h>

#include <functional>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "coll/control.h"
#include "sim/network.h"
#include "tests/sim_cluster/mesh.h"

namespace lockstep::simulated {

class LateConnections {
 public:
  /// `control_of` gives a rank's control plane; null: it is gone, and takes no call.
  LateConnections(sim::Network& network, std::function<coll::Control*(int rank)> control_of)
      : network_(network), control_of_(std::move(control_of)) {}

  /// Calls for that rank, and goes on with the calls of all.
  void serve(int rank, Time now) {
    for (const int called : control_of_(rank)->lacking()) {
      if (control_of_(called) == nullptr) control_of_(rank)->refused(called);
      const bool calls = called < rank && control_of_(called) != nullptr;
      if (!calls || calls_.count({rank, called}) > 0) continue;
      const std::string address = fmt::format("{}:{}", host(called), 6000 + next_port_++);
      Call& call = calls_[{rank, called}];
      call.listener = network_.at(host(called)).listen(address);
      call.connection = network_.at(host(rank)).connect(address);
    }
    for (auto each = calls_.begin(); each != calls_.end();) {
      const auto [caller, called] = each->first;
      coll::Control* const ends[] = {control_of_(caller), control_of_(called)};
      auto accepted = each->second.listener->accept();
      if (accepted && ends[0] != nullptr && ends[1] != nullptr) {
        ends[0]->connect(called, *each->second.connection, now);
        ends[1]->connect(caller, *accepted, now);
        kept_[caller].push_back(std::move(each->second.connection));
        kept_[called].push_back(std::move(accepted));
      }
      const bool is_over = !each->second.connection || ends[0] == nullptr || ends[1] == nullptr;
      each = is_over ? calls_.erase(each) : std::next(each);
    }
  }
  /// The rank's process ends.
  void close(int rank) { kept_.erase(rank); }
  void clear() {
    calls_.clear();
    kept_.clear();
  }

 private:
  struct Call {
    std::unique_ptr<sys::Listener> listener;
    std::unique_ptr<sys::Connection> connection;
  };
  sim::Network& network_;
  std::function<coll::Control*(int)> control_of_;
  std::map<std::pair<int, int>, Call> calls_;
  std::map<int, std::vector<std::unique_ptr<sys::Connection>>> kept_;
  int next_port_ = 0;
};

}  // namespace lockstep::simulated
