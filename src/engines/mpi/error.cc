#include "engines/mpi/error.h"

#include <fmt/format.h>

#include <string_view>

namespace lockstep::mpi {

Status to_status(int result, const char* call) {
  if (result == MPI_SUCCESS) return {};
  char text[MPI_MAX_ERROR_STRING] = {};
  int length = 0;
  MPI_Error_string(result, text, &length);
  return {
      ErrorKind::system_error, Code::unavailable,
      fmt::format("{} failed: {}", call, std::string_view(text, static_cast<std::size_t>(length)))};
}

}  // namespace lockstep::mpi
