// Device: the canonical name of the place where a replica computes or a value lives.
//
// Spelled as TensorFlow does; all of these are the same device:
//
//   ""   "CPU:0"   "/cpu:0"   "/device:CPU:0"   "/job:localhost/replica:0/task:0/device:CPU:0"
//
// Parts that are missing are job localhost, replica 0, task 0, CPU:0. The short form ("/cpu:0",
// "GPU:1") may be in lower case, the long form ("/device:CPU:0") may not. Text that is not a device
// is InvalidUsage. Whether a device exists is not known here: that is a DeviceTable's business.
//
//   std::vector<Device> devices = {"CPU:0", "CPU:1"};
//   devices[1].str();                             // /job:localhost/replica:0/task:0/device:CPU:1
//   Device::canonicalize("/task:1", "/job:worker/device:GPU:0");  // the default fills the gaps
//
// A value; thread-safe as an int is.
#pragma once

#include <compare>
#include <cstddef>
#include <functional>
#include <iosfwd>
#include <string>
#include <string_view>

namespace lockstep {

class Device {
 public:
  Device() = default;  // as ""
  // Implicit, so that devices can be written as strings wherever they are asked for.
  Device(const char* text) : Device(std::string_view(text)) {}
  Device(const std::string& text) : Device(std::string_view(text)) {}
  Device(std::string_view text);

  /// The parts of `text`; what it lacks comes from `defaults`, what both lack is as above.
  static Device canonicalize(std::string_view text, std::string_view defaults = {});

  [[nodiscard]] const std::string& job() const noexcept { return job_; }
  [[nodiscard]] int replica() const noexcept { return replica_; }
  [[nodiscard]] int task() const noexcept { return task_; }
  /// "CPU", "GPU".
  [[nodiscard]] const std::string& type() const noexcept { return type_; }
  [[nodiscard]] int index() const noexcept { return index_; }

  /// "/job:localhost/replica:0/task:0/device:CPU:0"; Device(d.str()) == d.
  [[nodiscard]] std::string str() const;
  /// "CPU:0".
  [[nodiscard]] std::string short_name() const;

  friend bool operator==(const Device&, const Device&) = default;
  /// By job, replica, task, type, index.
  friend std::strong_ordering operator<=>(const Device&, const Device&) = default;

 private:
  std::string job_ = "localhost";
  int replica_ = 0;
  int task_ = 0;
  std::string type_ = "CPU";
  int index_ = 0;
};

std::ostream& operator<<(std::ostream& out, const Device& device);

}  // namespace lockstep

template <>
struct std::hash<lockstep::Device> {
  std::size_t operator()(const lockstep::Device& device) const noexcept;
};
