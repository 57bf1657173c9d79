#include "lockstep/device_table.h"

#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <fmt/format.h>

#include "lockstep/error.h"

namespace lockstep {
namespace {

// More than any machine has use for as lanes; a table needs an end to list.
constexpr int kLogicalCpus = 64;

// "CPU:0 ... CPU:63", "GPU:0", "no GPU".
std::string list(const char* type, int count) {
  if (count == 0) return fmt::format("no {}", type);
  if (count == 1) return fmt::format("{}:0", type);
  return fmt::format("{0}:0 ... {0}:{1}", type, count - 1);
}

}  // namespace

DeviceTable DeviceTable::machine() {
  DeviceTable table = {.cpus = kLogicalCpus, .gpu_kind = Gpus::real};
  if (c10::impl::hasDeviceGuardImpl(c10::DeviceType::CUDA)) {
    const auto count = c10::impl::getDeviceGuardImpl(c10::DeviceType::CUDA)->deviceCount();
    table.gpus = static_cast<unsigned char>(count);  // a signed char that is never negative
  }
  return table;
}

bool DeviceTable::contains(const Device& device) const noexcept {
  if (device.type() == "CPU") return device.index() < cpus;
  return device.type() == "GPU" && device.index() < gpus;
}

void DeviceTable::check(const std::vector<Device>& devices) const {
  for (const Device& device : devices) {
    if (contains(device)) continue;
    throw ConfigError(
        fmt::format("device {} does not exist; here are: {}", device.str(), to_string()));
  }
}

at::Device DeviceTable::torch_device(const Device& device) const {
  check({device});
  if (device.type() == "CPU" || gpu_kind == Gpus::emulated) return at::Device(at::DeviceType::CPU);
  return {at::DeviceType::CUDA, static_cast<at::DeviceIndex>(device.index())};
}

std::vector<Device> DeviceTable::default_devices() const {
  if (gpus == 0) return {"CPU:0"};
  std::vector<Device> all;
  for (int i = 0; i < gpus; ++i) all.emplace_back(fmt::format("GPU:{}", i));
  return all;
}

std::string DeviceTable::to_string() const {
  return fmt::format("{}, {}", list("CPU", cpus), list("GPU", gpus));
}

}  // namespace lockstep
