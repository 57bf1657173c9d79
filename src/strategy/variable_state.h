// What stands behind a Variable, and how one is made.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "strategy/core.h"

namespace lockstep::detail {

struct VariableState {
  std::string name;
  std::shared_ptr<StrategyCore> core;
  std::vector<Tensor> components;
  DeviceList devices;                                           // one a component
  Synchronization synchronization = Synchronization::on_write;  // or on_read
  Aggregation aggregation = Aggregation::none;
  bool trainable = false;

  [[nodiscard]] bool on_read() const noexcept {
    return synchronization == Synchronization::on_read;
  }
};

/// The aggregation as a reduction; InvalidUsage for none.
ReduceOp reduce_op_of(const VariableState& state);

/// Creates what variable() was asked for in this context, without asking the creators.
Variable make_variable(const std::shared_ptr<StrategyCore>& core, VariableRequest request);

}  // namespace lockstep::detail
