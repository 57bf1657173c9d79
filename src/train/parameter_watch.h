// ParameterWatch: finds out whether something other than the optimizer has changed the parameters
// of one copy, or what the optimizer keeps for them, since its last step. A change is a write to a
// parameter, or new memory for it (torch::load, Module::to). A write through data() counts no
// version and is not seen.
//
// The workers learn of a change with the gradients of a step:
//   1. begin()             the optimizer has stepped; later changes count
//   2. report()            the answer that is sent with the gradients
//   3. note_late_change()  a change after report() is kept for the report of the next step
//   4. forget_report()     the step is over or was discarded
//
// Threads: the replica's own, or one thread while the replicas wait.
#pragma once

#include <cstdint>
#include <vector>

#include "lockstep/tensor.h"
#include "train/optimizer_state.h"

namespace lockstep::train {

class ParameterWatch {
 public:
  /// The parameters of the copy and its optimizer, which outlive this. Without begin() nothing
  /// counts as changed.
  ParameterWatch(const std::vector<Tensor>& parameters, const torch::optim::Optimizer& optimizer)
      : parameters_(parameters), state_(optimizer) {}

  /// Accepts all parameters as they are.
  void begin();
  /// A step has failed: nobody knows which copies have taken it. Counts as a change.
  void note_failed_step() noexcept { step_failed_ = true; }
  /// Accepts this parameter as it is: another optimizer has stepped it.
  void accept(int parameter);
  [[nodiscard]] bool has_changed() const;

  /// Between these the optimizer itself changes the parameters to evaluate a loss, so no change is
  /// reported. end_evaluations() accepts the parameters as they are.
  void begin_evaluations() noexcept { evaluating_ = true; }
  void end_evaluations();
  /// end_evaluations() if evaluations have begun.
  void cancel_evaluations();

  /// Decides what this step reports, and returns it.
  bool report();
  [[nodiscard]] bool has_reported() const noexcept { return reported_; }
  void note_late_change();
  void forget_report() noexcept { reported_ = false; }

 private:
  struct Look {
    const void* memory = nullptr;
    std::uint32_t version = 0;
    bool operator==(const Look&) const = default;
  };
  static Look look_at(const Tensor& parameter);

  const std::vector<Tensor>& parameters_;
  StateWatch state_;
  std::vector<Look> seen_;  // by parameter
  bool step_failed_ = false;
  bool evaluating_ = false;  // the optimizer itself changes the parameters
  bool reported_ = false;    // this step reports a change
  bool late_ = false;        // a change came after the report of the last step
};

}  // namespace lockstep::train
