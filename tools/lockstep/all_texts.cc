#include "all_texts.h"

#include <cstdint>
#include <numeric>
#include <span>

namespace lockstep::tool {

std::vector<std::string> all_texts(coll::Session& group, const std::string& own) {
  std::vector<std::int64_t> size = {static_cast<std::int64_t>(own.size())};
  std::vector<std::int64_t> sizes(static_cast<std::size_t>(group.size()));
  group.all_gather(std::span(size), std::span(sizes));
  const std::vector<std::uint64_t> counts(sizes.begin(), sizes.end());
  std::vector<std::uint8_t> bytes(own.begin(), own.end());
  std::vector<std::uint8_t> all(std::accumulate(counts.begin(), counts.end(), std::uint64_t{0}));
  group.all_gather(std::span(bytes), std::span(all), counts);
  std::vector<std::string> texts;
  auto at = all.begin();
  for (const std::uint64_t length : counts) {
    const auto end = at + static_cast<std::ptrdiff_t>(length);
    texts.emplace_back(at, end);
    at = end;
  }
  return texts;
}

}  // namespace lockstep::tool
