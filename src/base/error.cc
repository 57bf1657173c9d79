#include "lockstep/error.h"

namespace lockstep {

std::string_view to_string(ErrorKind kind) noexcept {
  switch (kind) {
    case ErrorKind::invalid_usage:
      return "InvalidUsage";
    case ErrorKind::config_error:
      return "ConfigError";
    case ErrorKind::unsupported:
      return "Unsupported";
    case ErrorKind::mismatch:
      return "Mismatch";
    case ErrorKind::peer_lost:
      return "PeerLost";
    case ErrorKind::timeout:
      return "Timeout";
    case ErrorKind::cancelled:
      return "Cancelled";
    case ErrorKind::end_of_data:
      return "EndOfData";
    case ErrorKind::data_error:
      return "DataError";
    case ErrorKind::system_error:
      return "SystemError";
    case ErrorKind::internal:
      return "InternalError";
  }
  return "?";
}

std::string_view to_string(Code code) noexcept {
  switch (code) {
    case Code::ok:
      return "OK";
    case Code::cancelled:
      return "CANCELLED";
    case Code::unknown:
      return "UNKNOWN";
    case Code::invalid_argument:
      return "INVALID_ARGUMENT";
    case Code::deadline_exceeded:
      return "DEADLINE_EXCEEDED";
    case Code::not_found:
      return "NOT_FOUND";
    case Code::already_exists:
      return "ALREADY_EXISTS";
    case Code::permission_denied:
      return "PERMISSION_DENIED";
    case Code::resource_exhausted:
      return "RESOURCE_EXHAUSTED";
    case Code::failed_precondition:
      return "FAILED_PRECONDITION";
    case Code::aborted:
      return "ABORTED";
    case Code::out_of_range:
      return "OUT_OF_RANGE";
    case Code::unimplemented:
      return "UNIMPLEMENTED";
    case Code::internal:
      return "INTERNAL";
    case Code::unavailable:
      return "UNAVAILABLE";
    case Code::data_loss:
      return "DATA_LOSS";
    case Code::unauthenticated:
      return "UNAUTHENTICATED";
  }
  return "?";
}

}  // namespace lockstep
