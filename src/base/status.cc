#include "base/status.h"

#include <cassert>
#include <new>
#include <system_error>

namespace lockstep {

Status Status::from_current_exception() {
  try {
    throw;
  } catch (const Error& e) {
    return {e.kind(), e.code(), e.what(), e.culprits()};
  } catch (const std::bad_alloc&) {
    return {ErrorKind::system_error, Code::resource_exhausted, "out of memory"};
  } catch (const std::system_error& e) {
    return {ErrorKind::system_error, Code::resource_exhausted, e.what()};
  } catch (const std::exception& e) {
    return {ErrorKind::internal, Code::internal, e.what()};
  } catch (...) {
    return {ErrorKind::internal, Code::internal, "an exception that is not a std::exception"};
  }
}

void raise(const Status& status) {
  assert(!status.ok());
  const Code code = status.code();
  const std::string& text = status.message();
  const std::vector<int>& who = status.culprits();
  switch (status.kind()) {
    case ErrorKind::invalid_usage:
      throw InvalidUsage(text, code, who);
    case ErrorKind::config_error:
      throw ConfigError(text, code, who);
    case ErrorKind::unsupported:
      throw Unsupported(text, code, who);
    case ErrorKind::mismatch:
      throw Mismatch(text, code, who);
    case ErrorKind::peer_lost:
      throw PeerLost(text, code, who);
    case ErrorKind::timeout:
      throw Timeout(text, code, who);
    case ErrorKind::cancelled:
      throw Cancelled(text, code, who);
    case ErrorKind::end_of_data:
      throw EndOfData(text, code, who);
    case ErrorKind::data_error:
      throw DataError(text, code, who);
    case ErrorKind::system_error:
      throw SystemError(text, code, who);
    case ErrorKind::internal:
      break;
  }
  throw InternalError(text, code, who);
}

}  // namespace lockstep
