// Status: an error as a value, for code that must not throw (state machines, threads, transports).
// raise() is the one place where a Status becomes an exception.
#pragma once

#include <string>
#include <vector>

#include "lockstep/error.h"

namespace lockstep {

class [[nodiscard]] Status {
 public:
  Status() = default;  // ok
  Status(ErrorKind kind, Code code, std::string message, std::vector<int> culprits = {})
      : kind_(kind), code_(code), message_(std::move(message)), culprits_(std::move(culprits)) {}

  [[nodiscard]] bool ok() const noexcept { return code_ == Code::ok; }
  [[nodiscard]] ErrorKind kind() const noexcept { return kind_; }
  [[nodiscard]] Code code() const noexcept { return code_; }
  [[nodiscard]] const std::string& message() const noexcept { return message_; }
  [[nodiscard]] const std::vector<int>& culprits() const noexcept { return culprits_; }

  /// The Status of an exception in flight: call inside a catch block.
  static Status from_current_exception();

  friend bool operator==(const Status&, const Status&) = default;

 private:
  ErrorKind kind_ = ErrorKind::internal;
  Code code_ = Code::ok;
  std::string message_;
  std::vector<int> culprits_;
};

/// Throws the exception class of the status's kind. The status must not be ok.
[[noreturn]] void raise(const Status& status);

inline void raise_if_error(const Status& status) {
  if (!status.ok()) raise(status);
}

}  // namespace lockstep
