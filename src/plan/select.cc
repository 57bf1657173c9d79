#include "plan/select.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "plan/form.h"
#include "plan/scan.h"
#include "plan/work.h"

namespace lockstep::plan {
namespace {

std::string names_of(Kind kind) {
  std::string names;
  const std::span<const Algorithm> all = algorithms(kind);
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (i > 0) names += i + 1 == all.size() ? " or " : ", ";
    names += all[i].name;
  }
  return names;
}

/// [0, kKindCount) if there is a collective of that name, else kKindCount.
int kind_named(std::string_view name) {
  int kind = 0;
  while (kind < kKindCount && name != to_string(static_cast<Kind>(kind))) ++kind;
  return kind;
}

/// "direct" or "direct:0-64K", for the kind.
Status parse_entry(Scanner& scan, Kind kind, Overrides& out) {
  const std::string_view name = scan.word();
  if (find_algorithm(kind, name) == nullptr) {
    return scan.expected_instead(
        fmt::format("an algorithm of {} ({})", to_string(kind), names_of(kind)));
  }
  Override entry{.kind = kind, .algorithm = std::string(name)};
  if (scan.accept(':')) {
    const bool has_from = !scan.accept('-');
    if (has_from && !scan.size(entry.from)) {
      return scan.expected("a size in bytes such as 4096 or 64K");
    }
    if (has_from && !scan.accept('-')) return scan.expected("'-'");
    const bool more = !scan.at_end() && !scan.peek(',') && !scan.peek(';');
    if (more && !scan.size(entry.to)) return scan.expected("a size in bytes such as 4096 or 64K");
    if (entry.to <= entry.from) return scan.expected_instead("a size above the first");
  }
  out.entries.push_back(std::move(entry));
  return {};
}

std::uint64_t bytes_of(const Request& request, std::uint64_t element_bytes) {
  return element_bytes * element_count(request);
}

std::string size_text(std::uint64_t bytes) {
  const char* const units[] = {"B", "KiB", "MiB", "GiB"};
  auto value = static_cast<double>(bytes);
  std::size_t unit = 0;
  for (; value >= 1024 && unit + 1 < std::size(units); ++unit) value /= 1024;
  return fmt::format("{:.4g} {}", value, units[unit]);
}

std::string refusal_of(const Algorithm& algorithm, const Request& request,
                       const Situation& situation) {
  if (algorithm.access > situation.access) {
    return situation.access == Access::slots ? "it needs buffers that all ranks can reach"
                                             : "it needs memory that all ranks share";
  }
  if (algorithm.slot_elements != nullptr) {
    const std::uint64_t needed =
        algorithm.slot_elements(request, situation.layout) * situation.element_bytes;
    if (needed > situation.slot_bytes) {
      return fmt::format("it would stage {} in slots of {}", size_text(needed),
                         size_text(situation.slot_bytes));
    }
  }
  if (algorithm.order == Order::any && situation.order == Order::fixed_tree) {
    return "it adds in an order of its own, which the caller does not allow";
  }
  return algorithm.refuses(request, situation.layout);
}

/// Threads need no connections.
int peers(const Algorithm& algorithm, const Request& request, const Situation& situation) {
  if (situation.access == Access::shared || situation.layout.ranks() == 1) return 0;
  const Terms terms(request, situation.layout, situation.element_bytes);
  return static_cast<int>(algorithm.work(terms).peers);
}

/// The best algorithm below most_peers() comes first, unless one with more is worth it.
void prefer_few_peers(std::vector<Candidate>& candidates, const Request& request,
                      const Situation& situation) {
  const int most = most_peers(situation.layout.ranks());
  const auto few = std::find_if(candidates.begin(), candidates.end(), [&](const Candidate& c) {
    return c.refusal.empty() && c.peers <= most;
  });
  if (few == candidates.end() || few == candidates.begin()) return;
  std::uint64_t bytes = bytes_of(request, situation.element_bytes);
  if (request.kind == Kind::all_to_all) {
    bytes *= static_cast<std::uint64_t>(situation.layout.ranks());
  }
  const bool worth_it = candidates.front().microseconds * kWorthConnections < few->microseconds;
  if (bytes > kSmallBytes && worth_it) return;
  std::rotate(candidates.begin(), few, few + 1);
}

std::vector<Candidate> weigh(const Request& request, const Situation& situation) {
  std::vector<Candidate> candidates;
  for (const Algorithm& algorithm : algorithms(request.kind)) {
    Candidate candidate{.algorithm = &algorithm,
                        .refusal = refusal_of(algorithm, request, situation)};
    if (candidate.refusal.empty()) {
      candidate.microseconds = estimate(algorithm, request, situation.layout,
                                        situation.element_bytes, situation.access, situation.costs);
      candidate.peers = peers(algorithm, request, situation);
    }
    candidates.push_back(std::move(candidate));
  }
  std::stable_sort(candidates.begin(), candidates.end(),
                   [](const Candidate& a, const Candidate& b) {
                     if (a.refusal.empty() != b.refusal.empty()) return a.refusal.empty();
                     return a.refusal.empty() && a.microseconds < b.microseconds;
                   });
  prefer_few_peers(candidates, request, situation);
  return candidates;
}

const Override* override_for(const Request& request, const Situation& situation) {
  const std::uint64_t bytes = bytes_of(request, situation.element_bytes);
  const Override* found = nullptr;
  for (const Override& entry : situation.overrides.entries) {
    if (entry.kind == request.kind && entry.from <= bytes && bytes < entry.to) found = &entry;
  }
  return found;
}

std::string reason_for_fastest(const std::vector<Candidate>& candidates, const Request& request,
                               const Situation& situation) {
  const Candidate& best = candidates.front();
  const std::string what =
      fmt::format("{} of {} over {} ranks", to_string(request.kind),
                  size_text(bytes_of(request, situation.element_bytes)), situation.layout.ranks());
  if (candidates.size() < 2 || !candidates[1].refusal.empty()) {
    return fmt::format("{} is the only algorithm that can do {} here", best.algorithm->name, what);
  }
  const Candidate& next = candidates[1];
  if (best.microseconds > next.microseconds) {
    return fmt::format(
        "{} is taken for {}: {:.4g} us with {} peers a rank; {} is estimated at {:.4g} us, but "
        "gives "
        "a rank {} peers",
        best.algorithm->name, what, best.microseconds, best.peers, next.algorithm->name,
        next.microseconds, next.peers);
  }
  return fmt::format("{} is estimated fastest for {}: {:.4g} us; next is {} with {:.4g} us",
                     best.algorithm->name, what, best.microseconds, next.algorithm->name,
                     next.microseconds);
}

}  // namespace

int most_peers(int ranks) noexcept {
  // Below the first number every pair may connect.
  constexpr int kFew = 16;
  constexpr int kPerLevel = 4;
  return std::max(kFew,
                  kPerLevel * static_cast<int>(std::bit_width(static_cast<unsigned>(ranks - 1))));
}

Status parse_overrides(std::string_view text, Overrides& out) {
  Scanner scan("algorithms", text);
  Overrides parsed;
  while (!scan.at_end()) {
    const int kind = kind_named(scan.word());
    if (kind == kKindCount) {
      return scan.expected_instead("a collective such as all_reduce or broadcast");
    }
    if (!scan.accept('=')) return scan.expected("'='");
    do {
      Status status = parse_entry(scan, static_cast<Kind>(kind), parsed);
      if (!status.ok()) return status;
    } while (scan.accept(','));
    if (!scan.at_end() && !scan.accept(';')) return scan.expected("',' or ';'");
  }
  out = std::move(parsed);
  return {};
}

Choice select(const Request& request, const Situation& situation) {
  Choice choice{.algorithm = nullptr, .why = {}, .candidates = weigh(request, situation)};
  if (const Override* wanted = override_for(request, situation)) {
    const auto found =
        std::find_if(choice.candidates.begin(), choice.candidates.end(),
                     [&](const Candidate& c) { return c.algorithm->name == wanted->algorithm; });
    if (found == choice.candidates.end()) {
      choice.why = fmt::format("{} was asked for, but there is none; ", wanted->algorithm);
    } else if (!found->refusal.empty()) {
      choice.why = fmt::format("{} was asked for, but cannot be used: {}; ", wanted->algorithm,
                               found->refusal);
    } else {
      choice.algorithm = found->algorithm;
      choice.why = fmt::format("{} was asked for", wanted->algorithm);
      return choice;
    }
  }
  // The first algorithm of each kind always applies, so the front is usable.
  choice.algorithm = choice.candidates.front().algorithm;
  choice.why += reason_for_fastest(choice.candidates, request, situation);
  return choice;
}

}  // namespace lockstep::plan
