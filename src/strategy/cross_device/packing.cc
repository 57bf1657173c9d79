#include "strategy/cross_device/packing.h"

#include <algorithm>

namespace lockstep::detail {

namespace {

Piece whole(const std::vector<PackItem>& items, std::size_t i) { return {i, 0, items[i].elements}; }

/// Items of equal dtype together, in the order of each dtype's first.
std::vector<std::vector<std::size_t>> by_dtype(const std::vector<PackItem>& items) {
  std::vector<std::vector<std::size_t>> series;
  for (std::size_t i = 0; i < items.size(); ++i) {
    const auto same = std::find_if(series.begin(), series.end(), [&](const auto& one) {
      return items[one.front()].dtype == items[i].dtype;
    });
    if (same == series.end()) {
      series.push_back({i});
    } else {
      same->push_back(i);
    }
  }
  return series;
}

}  // namespace

std::vector<Pack> split_evenly(const std::vector<PackItem>& items, int packs) {
  std::vector<Pack> result;
  for (const auto& series : by_dtype(items)) {
    std::int64_t total = 0;
    for (const std::size_t i : series) total += items[i].elements;
    const std::int64_t length = total / packs;
    const std::size_t first = result.size();
    result.resize(first + static_cast<std::size_t>(packs));
    std::size_t pack = first;
    std::int64_t room = packs == 1 ? total : length;
    for (const std::size_t i : series) {
      for (std::int64_t begin = 0; begin < items[i].elements;) {
        while (room == 0) {
          ++pack;
          room = pack + 1 == result.size() ? total : length;
        }
        const std::int64_t end = std::min(items[i].elements, begin + room);
        result[pack].push_back({i, begin, end});
        room -= end - begin;
        begin = end;
      }
    }
  }
  return result;
}

std::vector<Pack> group_small(const std::vector<PackItem>& items, std::int64_t max_bytes,
                              int max_group) {
  std::vector<Pack> groups;
  std::vector<Pack> alone;
  Pack run;
  const auto close = [&] {
    if (run.size() > 1) {
      groups.push_back(run);
    } else if (!run.empty()) {
      alone.push_back(run);
    }
    run.clear();
  };
  for (std::size_t i = 0; i < items.size(); ++i) {
    const bool small = items[i].bytes() <= max_bytes;
    if (!run.empty() && (!small || items[run.front().item].dtype != items[i].dtype ||
                         run.size() == static_cast<std::size_t>(max_group))) {
      close();
    }
    if (small) {
      run.push_back(whole(items, i));
    } else {
      alone.push_back({whole(items, i)});
    }
  }
  close();
  groups.insert(groups.end(), alone.begin(), alone.end());
  return groups;
}

std::vector<Pack> one_each(const std::vector<PackItem>& items) {
  std::vector<Pack> packs;
  packs.reserve(items.size());
  for (std::size_t i = 0; i < items.size(); ++i) packs.push_back({whole(items, i)});
  return packs;
}

std::vector<Pack> fill(const std::vector<PackItem>& items, std::int64_t bytes_per_pack) {
  std::vector<Pack> packs;
  for (const auto& series : by_dtype(items)) {
    packs.emplace_back();
    std::int64_t bytes = 0;
    for (const std::size_t i : series) {
      if (bytes_per_pack > 0 && bytes > bytes_per_pack) {
        packs.emplace_back();
        bytes = 0;
      }
      packs.back().push_back(whole(items, i));
      bytes += items[i].bytes();
    }
  }
  return packs;
}

}  // namespace lockstep::detail
