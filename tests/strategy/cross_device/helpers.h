// Helpers of the cross-device tests: values on CPU:0 ... CPU:n-1, bits, and what was logged.
#pragma once

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "../fixtures.h"
#include "base/log.h"

namespace lockstep {

inline DeviceList devices(int count) { return cpus(count).devices; }

/// One component for each of as many devices.
inline PerReplica<Tensor> on_devices(std::vector<Tensor> values) {
  const int count = static_cast<int>(values.size());
  return {std::move(values), devices(count)};
}

inline bool same_bits(const Tensor& a, const Tensor& b) {
  const Tensor x = a.contiguous();
  const Tensor y = b.contiguous();
  return x.scalar_type() == y.scalar_type() && x.sizes() == y.sizes() &&
         (x.nbytes() == 0 || std::memcmp(x.data_ptr(), y.data_ptr(), x.nbytes()) == 0);
}

/// Keeps warnings off the terminal, and to look at.
class LoggedTest : public ::testing::Test {
 protected:
  void SetUp() override {
    set_log_sink([this](LogLevel level, std::string_view text) {
      if (level >= LogLevel::warning) log_.emplace_back(text);
    });
  }
  void TearDown() override { set_log_sink({}); }
  /// What was written so far.
  const std::vector<std::string>& log() {
    flush_log();
    return log_;
  }

 private:
  std::vector<std::string> log_;
};

}  // namespace lockstep
