#include "doctor/pairs.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <span>
#include <sstream>

#include "all_texts.h"

namespace lockstep::tool {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kWarmups = 5;
constexpr int kRounds = 21;
constexpr int kLargeRounds = 5;
constexpr std::size_t kLarge = std::size_t{1} << 20;

void call(coll::Session& group, std::span<std::uint8_t> message, int peer) {
  group.send(message, coll::To{peer});
  group.receive(message, coll::From{peer});
}

void answer(coll::Session& group, std::span<std::uint8_t> message, int peer) {
  group.receive(message, coll::From{peer});
  group.send(message, coll::To{peer});
}

/// Microseconds of the median round trip.
double round_trip(coll::Session& group, std::size_t bytes, int rounds, int peer) {
  std::vector<std::uint8_t> message(bytes);
  std::vector<double> times;
  for (int i = 0; i < kWarmups + rounds; ++i) {
    const auto began = Clock::now();
    if (group.rank() < peer) {
      call(group, message, peer);
    } else {
      answer(group, message, peer);
    }
    const std::chrono::duration<double, std::micro> taken = Clock::now() - began;
    if (i >= kWarmups) times.push_back(taken.count());
  }
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

/// Between two ranks of a group; all of them in shared memory, or streams between all of them.
std::string transport_of(const coll::Session& group, int a, int b) {
  std::string all = group.transport();
  const std::string local = "shared memory";
  const std::string both = local + " and ";
  if (!all.starts_with(both)) return all;
  return group.host(a) == group.host(b) ? local : all.substr(both.size());
}

}  // namespace

std::vector<Pair> measure_pairs(coll::Session& group) {
  std::string own;
  for (int a = 0; a < group.size(); ++a) {
    if (a > 0 && group.size() > kMostRanksOfAllPairs) break;
    for (int b = a + 1; b < group.size(); ++b) {
      group.barrier();  // one pair at a time
      if (group.rank() != a && group.rank() != b) continue;
      const int peer = group.rank() == a ? b : a;
      const double small = round_trip(group, 8, kRounds, peer);
      const double large = round_trip(group, kLarge, kLargeRounds, peer);
      if (group.rank() == b) continue;
      own += fmt::format("{} {} {} {}\n", a, b, small / 2,
                         2 * static_cast<double>(kLarge) / large / 1e3);
    }
  }
  std::vector<Pair> pairs;
  for (const std::string& text : all_texts(group, own)) {
    std::istringstream stream(text);
    for (Pair pair; stream >> pair.a >> pair.b >> pair.latency >> pair.bandwidth;) {
      pair.transport = transport_of(group, pair.a, pair.b);
      pairs.push_back(pair);
    }
  }
  return pairs;
}

}  // namespace lockstep::tool
