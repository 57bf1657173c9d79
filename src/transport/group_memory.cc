#include "transport/group_memory.h"

#include <utility>

namespace lockstep::transport {

GroupMemory::GroupMemory(ShmHost& host, std::uint64_t group, const std::vector<int>& indices,
                         std::size_t bytes)
    : host_(host), part_(1) {
  ShmHost::Part& part = part_.front();
  part.group = group;
  for (const int index : indices) {
    if (index != host_.index()) part.open.push_back({.index = index});
  }
  part.others = part.open.size();
  host_.collect();
  add(bytes, bytes);
  try {
    host_.announce(part);
  } catch (...) {
    host_.arena_.free(part.memory.front());
    throw;
  }
}

GroupMemory::~GroupMemory() { host_.close(std::move(part_)); }

std::byte* GroupMemory::find(int index, std::size_t bytes) const noexcept {
  return host_.find(index, part_.front().group, bytes);
}

std::byte* GroupMemory::add(std::size_t bytes, std::size_t committed) {
  auto& memory = part_.front().memory;
  memory.reserve(memory.size() + 1);
  memory.push_back(host_.arena_.reserve(bytes, committed));
  return memory.back().data;
}

}  // namespace lockstep::transport
