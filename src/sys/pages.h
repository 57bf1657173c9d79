// The sizes in which the system hands out memory.
#pragma once

#include <cstddef>

namespace lockstep::sys {

constexpr std::size_t kPage = 4096;
constexpr std::size_t kHugePage = std::size_t{2} << 20;

constexpr std::size_t round_up(std::size_t bytes, std::size_t to) {
  return (bytes + to - 1) / to * to;
}

}  // namespace lockstep::sys
