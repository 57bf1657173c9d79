// FiniteCheck: finds NaN and infinity in summed gradients. With NonFinite::error it also knows
// which replicas computed them: the exchange may overwrite a replica's own gradient with the sum,
// so each gradient is recorded before.
//
//   1. record()            a gradient has arrived
//   2. record_rest()       before the exchange: gradients that did not arrive
//   3. first_non_finite()  after the exchange; then origin_of() for the message
//
// Threads: record() and record_rest() for different replicas at the same time. All other functions
// by one thread while the replicas wait.
#pragma once

#include <string>
#include <vector>

#include "lockstep/optimizer.h"
#include "strategy/core.h"
#include "train/arrivals.h"
#include "train/parameters.h"

namespace lockstep::train {

class FiniteCheck {
 public:
  /// The first two outlive this object.
  FiniteCheck(detail::StrategyCore& strategy, const Parameters& parameters, NonFinite policy);

  /// Remembers whether a replica's own gradient is finite. Does nothing without NonFinite::error.
  void record(int replica, int parameter, const Tensor& gradient);
  /// The same for every gradient of the replica that is not in `arrivals`: accumulated gradients. A
  /// gradient that is undefined counts as finite.
  void record_rest(int replica, const Arrivals& arrivals);
  /// Forgets all records.
  void forget();

  /// The first parameter whose sum in `.grad` is not finite, or -1; the same on all workers.
  [[nodiscard]] int first_non_finite() const;
  /// For a message: which replicas of all workers computed a gradient of this parameter that is not
  /// finite. All workers call it together.
  [[nodiscard]] std::string origin_of(int parameter) const;

 private:
  detail::StrategyCore& strategy_;
  const Parameters& parameters_;
  NonFinite policy_;
  std::vector<std::vector<char>> not_finite_;  // [local replica][parameter]
};

}  // namespace lockstep::train
