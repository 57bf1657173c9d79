// Helpers of the strategy tests: strategies on logical devices, what a call threw, and the check
// that a thread is back outside of everything.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <string>
#include <vector>

#include "lockstep/lockstep.h"

namespace lockstep {

/// A strategy on CPU:0 ... CPU:n-1.
inline MirroredOptions cpus(int count, Execution execution = Execution::concurrent) {
  MirroredOptions options;
  for (int i = 0; i < count; ++i) options.devices.emplace_back("CPU:" + std::to_string(i));
  options.replicas.execution = execution;
  return options;
}

/// A strategy on devices of which the GPUs are not there.
inline MirroredOptions on(DeviceList devices) {
  MirroredOptions options;
  options.devices = std::move(devices);
  options.device_table = DeviceTable{.cpus = 2, .gpus = 2};
  return options;
}

/// The message of the E that fn throws; a failure if it throws another, or none.
template <class E, class F>
std::string error_of(Code code, F&& fn) {
  try {
    fn();
  } catch (const E& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  } catch (const std::exception& error) {
    ADD_FAILURE() << "another exception: " << error.what();
    return "";
  }
  ADD_FAILURE() << "no exception";
  return "";
}
/// InvalidUsage of a wrong value, and of a wrong context.
template <class F>
std::string wrong_value(F&& fn) {
  return error_of<InvalidUsage>(Code::invalid_argument, fn);
}
template <class F>
std::string wrong_context(F&& fn) {
  return error_of<InvalidUsage>(Code::failed_precondition, fn);
}

inline std::vector<double> numbers(const Tensor& tensor) {
  const Tensor flat = tensor.detach().to(torch::kDouble).contiguous().view(-1);
  return {flat.data_ptr<double>(), flat.data_ptr<double>() + flat.numel()};
}
inline double number(const Tensor& tensor) { return tensor.item<double>(); }
/// Of scalars: one number a component.
template <class L>
std::vector<double> numbers(const Distributed<Tensor, L>& value) {
  std::vector<double> all;
  for (int i = 0; i < value.size(); ++i) all.push_back(number(value[i]));
  return all;
}
inline std::vector<double> numbers(const Variable& variable) {
  std::vector<double> all;
  for (const Component& component : variable.components()) all.push_back(number(component));
  return all;
}

/// This replica's id, inside a step function.
inline int replica_id() { return get_replica_context()->replica_id_in_sync_group(); }

inline void expect_outside() {
  EXPECT_FALSE(has_strategy());
  EXPECT_FALSE(in_cross_replica_context());
  ASSERT_NE(get_replica_context(), nullptr);
  EXPECT_EQ(get_replica_context()->num_replicas_in_sync(), 1);
  EXPECT_EQ(current_device(), "");
  EXPECT_EQ(scoped_name("x"), "x");
}

}  // namespace lockstep
