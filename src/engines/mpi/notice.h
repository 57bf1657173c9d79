// Notice: what a rank tells others outside of operations: that the generation has failed there, or
// that it takes part in a group no more. Bytes as they are: all ranks of a job are one program.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/status.h"

namespace lockstep::mpi {

struct Notice {
  enum class Kind : std::uint32_t { failed, left };
  Kind kind = Kind::failed;
  std::int32_t rank = 0;        // of the generation; who tells
  std::uint64_t job = 0;        // which mpi_session() of the process
  std::uint64_t group = 0;      // left: which group
  std::uint64_t home = 0;       // left: the same, or the one whose messages it carries
  std::uint64_t completed = 0;  // left: operations of that group which this rank has completed
  std::int32_t error_kind = 0;
  std::int32_t code = 0;
  std::int32_t culprit_count = 0;
  std::int32_t text_length = 0;
  std::array<std::int32_t, 16> culprits{};
  std::array<char, 2000> text{};  // at the end: only what is used travels

  void set_cause(const Status& why) noexcept;
  [[nodiscard]] Status cause() const;
  [[nodiscard]] int bytes() const noexcept {
    return static_cast<int>(offsetof(Notice, text)) + text_length;
  }
};

}  // namespace lockstep::mpi
