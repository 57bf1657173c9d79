#include "lockstep/device.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <ostream>

#include "lockstep/error.h"

namespace lockstep {
namespace {

// What a text says; a part it does not mention is absent.
struct Parts {
  std::optional<std::string> job;
  std::optional<int> replica;
  std::optional<int> task;
  std::optional<std::string> type;
  int index = 0;  // of type
};

bool is_upper(char c) { return c >= 'A' && c <= 'Z'; }
bool is_lower(char c) { return c >= 'a' && c <= 'z'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

std::string to_upper(std::string_view text) {
  std::string upper(text);
  for (char& c : upper) {
    if (is_lower(c)) c = static_cast<char>(c - 'a' + 'A');
  }
  return upper;
}

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  Parts parse() {
    std::string_view rest = text_;
    if (!rest.empty() && rest.front() != '/') {
      part(rest);  // "CPU:0": the short form stands alone
      return parts_;
    }
    while (!rest.empty()) {
      rest.remove_prefix(1);
      const std::size_t end = std::min(rest.find('/'), rest.size());
      part(rest.substr(0, end));
      rest.remove_prefix(end);
    }
    return parts_;
  }

 private:
  [[noreturn]] void fail(std::string_view what) const {
    throw InvalidUsage(
        fmt::format("device \"{}\": {}. Expected \"CPU:0\", \"/cpu:0\", \"/device:GPU:1\" or "
                    "\"/job:worker/replica:0/task:1/device:CPU:0\", of which parts may be left out",
                    text_, what));
  }

  [[nodiscard]] int number(std::string_view name, std::string_view digits) const {
    int value = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (digits.empty() || !std::all_of(digits.begin(), digits.end(), is_digit) ||
        error != std::errc() || end != digits.data() + digits.size()) {
      fail(fmt::format("the {} must be a number, not \"{}\"", name, digits));
    }
    return value;
  }

  template <class T>
  void set(std::optional<T>& slot, std::string_view name, T value) const {
    if (slot) fail(fmt::format("the {} is given twice", name));
    slot = std::move(value);
  }

  void part(std::string_view text) {
    const std::size_t colon = text.find(':');
    if (text.empty()) fail("a part between '/' is empty");
    if (colon == std::string_view::npos) fail(fmt::format("\"{}\" has no ':'", text));
    const std::string_view name = text.substr(0, colon);
    const std::string_view value = text.substr(colon + 1);
    const std::string upper = to_upper(name);
    if (name == "job") {
      set(parts_.job, "job", job(value));
    } else if (name == "replica") {
      set(parts_.replica, name, number(name, value));
    } else if (name == "task") {
      set(parts_.task, name, number(name, value));
    } else if (name == "device") {
      long_form(value);
    } else if (upper == "CPU" || upper == "GPU") {
      device(upper, value);
    } else {
      fail(fmt::format("\"{}\" is not job, replica, task, device, cpu or gpu", name));
    }
  }

  [[nodiscard]] std::string job(std::string_view name) const {
    const auto allowed = [](char c) {
      return is_upper(c) || is_lower(c) || is_digit(c) || c == '_';
    };
    if (name.empty() || is_digit(name.front()) || !std::all_of(name.begin(), name.end(), allowed)) {
      fail(fmt::format("the job must be letters, digits and '_', not \"{}\"", name));
    }
    return std::string(name);
  }

  void long_form(std::string_view value) {
    const std::size_t colon = value.find(':');
    if (colon == std::string_view::npos) fail("\"device:\" wants a type and an index");
    const std::string_view type = value.substr(0, colon);
    const auto allowed = [](char c) { return is_upper(c) || is_digit(c) || c == '_'; };
    if (type.empty() || is_digit(type.front()) || !std::all_of(type.begin(), type.end(), allowed)) {
      fail(fmt::format("the device type must be in upper case, not \"{}\"", type));
    }
    device(std::string(type), value.substr(colon + 1));
  }

  void device(std::string type, std::string_view index) {
    set(parts_.type, "device", std::move(type));
    parts_.index = number("device index", index);
  }

  std::string_view text_;
  Parts parts_;
};

}  // namespace

Device::Device(std::string_view text) : Device(canonicalize(text)) {}

Device Device::canonicalize(std::string_view text, std::string_view defaults) {
  const Parts given = Parser(text).parse();
  const Parts fallback = Parser(defaults).parse();
  Device device;
  device.job_ = given.job.value_or(fallback.job.value_or("localhost"));
  device.replica_ = given.replica.value_or(fallback.replica.value_or(0));
  device.task_ = given.task.value_or(fallback.task.value_or(0));
  const Parts& typed = given.type ? given : fallback;
  device.type_ = typed.type.value_or("CPU");
  device.index_ = typed.index;
  return device;
}

std::string Device::str() const {
  return fmt::format("/job:{}/replica:{}/task:{}/device:{}:{}", job_, replica_, task_, type_,
                     index_);
}

std::string Device::short_name() const { return fmt::format("{}:{}", type_, index_); }

std::ostream& operator<<(std::ostream& out, const Device& device) { return out << device.str(); }

}  // namespace lockstep

std::size_t std::hash<lockstep::Device>::operator()(const lockstep::Device& device) const noexcept {
  std::size_t mixed = std::hash<std::string>()(device.job());
  const auto mix = [&mixed](std::size_t part) { mixed = mixed * 0x9E3779B97F4A7C15U + part; };
  mix(static_cast<std::size_t>(device.replica()));
  mix(static_cast<std::size_t>(device.task()));
  mix(std::hash<std::string>()(device.type()));
  mix(static_cast<std::size_t>(device.index()));
  return mixed;
}
