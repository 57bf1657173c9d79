// OptimizerSharing: what an optimizer and the other optimizers of its strategy tell each other.
//
// Optimizers affect each other in two ways:
//   1. Two of them have the same parameter. Its gradient belongs to the optimizer that steps first,
//      so neither of them sends gradients during backward.
//   2. One backward pass reaches the parameters of two of them. The optimizer that steps first uses
//      the pass. What the pass has left on the other's parameters is left behind: it counts until
//      the next pass, which begins without it (train/arrivals.h).
//
// The other optimizers learn of a step and of a discard() from the announce_ functions, which
// change their Shared state.
//
// Threads: pass_of() and before_arrival() are called on the replica's own thread, inside its
// backward pass. The announce_ functions and forget() are called by one thread while the replicas
// wait. The rest may be called on any thread.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "train/arrivals.h"
#include "train/gradient_exchange.h"
#include "train/optimizer_list.h"
#include "train/parameter_watch.h"

namespace lockstep::detail {

class OptimizerSharing {
 public:
  /// The state of an optimizer that the others change. All of it outlives this object.
  struct Shared {
    const train::Parameters& parameters;
    train::GradientExchange& exchange;
    std::vector<train::Arrivals>& arrivals;       // by copy
    std::vector<train::ParameterWatch>& watches;  // by copy
  };

  /// `type` is the optimizer's, for messages.
  OptimizerSharing(const Shared& shared, const std::string& type);
  /// The other optimizers know no more of this one.
  ~OptimizerSharing();
  OptimizerSharing(const OptimizerSharing&) = delete;
  OptimizerSharing& operator=(const OptimizerSharing&) = delete;

  /// Before this is added to the list: counts the parameters that others have, too. InvalidUsage if
  /// one of those optimizers is sending gradients.
  void join(const std::shared_ptr<OptimizerList>& list);

  /// "Adam over weight and 3 more".
  [[nodiscard]] const std::string& description() const noexcept { return description_; }
  /// For messages: how to keep a pass of another optimizer from these parameters. Empty if there is
  /// no other optimizer.
  [[nodiscard]] std::string advice() const;
  /// For messages: the call of another optimizer that used a pass or took gradients since the last
  /// step, such as "the apply() of Adam over weight".
  [[nodiscard]] const std::string& taken_by() const noexcept { return taken_by_; }

  [[nodiscard]] bool shares_any() const noexcept { return all_sharers_.load() > 0; }
  /// How many parameters other optimizers have, too.
  [[nodiscard]] int count_shared() const;
  /// Whether gradients are sent while backward goes on: if the exchange does so, and no other
  /// optimizer has one of the parameters.
  [[nodiscard]] bool sends_during_backward() const;

  /// The number of the backward pass that this replica is in.
  [[nodiscard]] std::int64_t pass_of(int replica) const { return list_->pass_of(replica); }
  /// Before a gradient of another pass is accumulated: drops the gradients left behind.
  void before_arrival(int replica);

  /// This optimizer is about to step with the passes that have arrived.
  void announce_apply() const;
  /// This optimizer has changed its parameters.
  void announce_step() const;
  /// This optimizer has dropped its gradients, and all passes have ended.
  void announce_discard() const;
  /// The step is over or was discarded.
  void forget() noexcept { taken_by_.clear(); }

 private:
  /// The number of the parameter that is this tensor of the first copy, or -1.
  [[nodiscard]] int number_of(const Tensor& tensor) const;
  [[nodiscard]] bool shares_with(const OptimizerSharing& other, int parameter) const;
  [[nodiscard]] bool has_arrivals() const;
  void add_sharers(int parameter, int count);
  void lose_passes_to(const OptimizerSharing& other);
  void lose_gradients_to(const OptimizerSharing& other, const char* call);
  void accept_step_of(const OptimizerSharing& other);
  void drop_left_behind(int replica);

  Shared shared_;
  std::string description_;
  std::map<const at::TensorImpl*, int> numbers_;  // of the first copy's tensors
  std::vector<std::atomic<int>> sharers_;         // by parameter: other optimizers that have it
  std::atomic<int> all_sharers_ = 0;              // the sum of sharers_
  std::shared_ptr<OptimizerList> list_;           // null before join()
  std::string taken_by_;
  std::atomic<bool> warned_of_left_ = false;
};

}  // namespace lockstep::detail
