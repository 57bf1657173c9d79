// What lockstep throws.
//
// Every exception is an Error: it has a kind (what sort of thing went wrong, one class each), a
// code (TensorFlow's canonical code, for programs that report it) and the ranks it blames, the same
// ones on every surviving rank. Catch the class you can act on, Error otherwise:
//
//   try { group.all_reduce(Op::sum, std::span(x)); }
//   catch (const lockstep::PeerLost& e) { report(e.culprits()); }
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep {

enum class ErrorKind {
  invalid_usage,  // the call was wrong; nothing was sent
  config_error,   // cluster description or environment
  unsupported,    // not built, or not possible here
  mismatch,       // the ranks asked for different things
  peer_lost,      // a rank died, left or went silent
  timeout,        // a deadline passed
  cancelled,      // somebody aborted the group
  end_of_data,    // the input is exhausted
  data_error,     // corrupt or truncated data
  system_error,   // the operating system refused
  internal,       // a bug of ours
};

/// TensorFlow's canonical codes, with its numbers.
enum class Code {
  ok = 0,
  cancelled = 1,
  unknown = 2,
  invalid_argument = 3,
  deadline_exceeded = 4,
  not_found = 5,
  already_exists = 6,
  permission_denied = 7,
  resource_exhausted = 8,
  failed_precondition = 9,
  aborted = 10,
  out_of_range = 11,
  unimplemented = 12,
  internal = 13,
  unavailable = 14,
  data_loss = 15,
  unauthenticated = 16,
};

std::string_view to_string(ErrorKind kind) noexcept;
std::string_view to_string(Code code) noexcept;

class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, Code code, const std::string& message, std::vector<int> culprits = {})
      : std::runtime_error(message), kind_(kind), code_(code), culprits_(std::move(culprits)) {}

  [[nodiscard]] ErrorKind kind() const noexcept { return kind_; }
  [[nodiscard]] Code code() const noexcept { return code_; }
  /// Ranks to blame, ascending; empty when no rank is.
  [[nodiscard]] const std::vector<int>& culprits() const noexcept { return culprits_; }

 private:
  ErrorKind kind_;
  Code code_;
  std::vector<int> culprits_;
};

/// One class per kind, so that a handler names what it can act on.
template <ErrorKind which, Code default_code>
class ErrorOf : public Error {
 public:
  explicit ErrorOf(const std::string& message, Code code = default_code,
                   std::vector<int> culprits = {})
      : Error(which, code, message, std::move(culprits)) {}
};

using InvalidUsage = ErrorOf<ErrorKind::invalid_usage, Code::invalid_argument>;
using ConfigError = ErrorOf<ErrorKind::config_error, Code::invalid_argument>;
using Unsupported = ErrorOf<ErrorKind::unsupported, Code::unimplemented>;
using Mismatch = ErrorOf<ErrorKind::mismatch, Code::invalid_argument>;
using PeerLost = ErrorOf<ErrorKind::peer_lost, Code::unavailable>;
using Timeout = ErrorOf<ErrorKind::timeout, Code::deadline_exceeded>;
using Cancelled = ErrorOf<ErrorKind::cancelled, Code::cancelled>;
using EndOfData = ErrorOf<ErrorKind::end_of_data, Code::out_of_range>;
using DataError = ErrorOf<ErrorKind::data_error, Code::data_loss>;
using SystemError = ErrorOf<ErrorKind::system_error, Code::resource_exhausted>;
using InternalError = ErrorOf<ErrorKind::internal, Code::internal>;

}  // namespace lockstep
