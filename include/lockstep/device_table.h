// DeviceTable: which devices exist here, and what libtorch computes on for each.
//
// CPUs are logical: CPU:0 ... CPU:63 exist on every machine, however many cores it has, and all are
// libtorch's one CPU. GPUs are what libtorch sees. A table made by hand stands in for hardware that
// is not there, in tests: its GPUs are emulated on the CPU.
//
//   auto table = DeviceTable::machine();
//   table.check({"CPU:0", "CPU:1"});                        // ConfigError if one does not exist
//   DeviceTable two = {.cpus = 2, .gpus = 8, .links = {{1, 2, 3, 4}, {0, 2, 3, 5}, ...}};
//
// A value; thread-safe as an int is.
#pragma once

#include <c10/core/Device.h>

#include <string>
#include <vector>

#include "lockstep/device.h"

namespace lockstep {

struct DeviceTable {
  enum class Gpus { emulated, real };

  int cpus = 1;
  int gpus = 0;
  /// links[i]: the GPUs that GPU i reaches directly, in any order, itself or not. Empty: unknown.
  std::vector<std::vector<int>> links = {};
  Gpus gpu_kind = Gpus::emulated;

  static DeviceTable machine();

  /// Type and index decide; every task of every job is taken to have the same devices.
  [[nodiscard]] bool contains(const Device& device) const noexcept;
  /// ConfigError naming the first device that is not in the table, and what is.
  void check(const std::vector<Device>& devices) const;
  /// Checks, too.
  [[nodiscard]] at::Device torch_device(const Device& device) const;
  /// All GPUs; without any, CPU:0.
  [[nodiscard]] std::vector<Device> default_devices() const;
  /// "CPU:0 ... CPU:63, no GPU".
  [[nodiscard]] std::string to_string() const;
};

}  // namespace lockstep
