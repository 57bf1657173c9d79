#include "format/read_bytes.h"

#include <algorithm>

namespace lockstep::format {
namespace {

constexpr std::uint64_t kFirstStep = std::uint64_t{1} << 20;

}  // namespace

std::size_t read_fully(const ReadBytes& read, std::span<std::byte> into) {
  std::size_t filled = 0;
  while (filled < into.size()) {
    const std::size_t now = read(into.subspan(filled));
    if (now == 0) break;
    filled += now;
  }
  return filled;
}

std::vector<std::byte> read_growing(const ReadBytes& read, std::uint64_t bytes) {
  std::vector<std::byte> memory;
  while (memory.size() < bytes) {
    const std::uint64_t had = memory.size();
    const std::uint64_t step = std::min(bytes - had, std::max(kFirstStep, had));
    memory.resize(had + step);
    const std::size_t came = read_fully(read, std::span(memory).subspan(had));
    if (came < step) {
      memory.resize(had + came);
      break;
    }
  }
  return memory;
}

ReadBytes bytes_of(std::span<const std::byte> memory) {
  return [memory](std::span<std::byte> into) mutable {
    const std::size_t now = std::min(into.size(), memory.size());
    std::copy_n(memory.begin(), now, into.begin());
    memory = memory.subspan(now);
    return now;
  };
}

ReadAt window_of(std::span<const std::byte> memory) {
  return [memory](std::uint64_t offset, std::span<std::byte> into) -> std::size_t {
    if (offset >= memory.size()) return 0;
    const auto rest = memory.subspan(offset);
    const std::size_t now = std::min(into.size(), rest.size());
    std::copy_n(rest.begin(), now, into.begin());
    return now;
  };
}

}  // namespace lockstep::format
