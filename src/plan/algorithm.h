// The catalogue of algorithms: each is a name, where it applies, and a function that makes plans.
//
//   const Algorithm& a = *find_algorithm(Kind::all_reduce, "direct");
//   Plan mine = a.make(request, layout, rank);
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "plan/plan.h"
#include "plan/staging.h"

namespace lockstep::plan {

/// How peers are reached: by messages only; also through slots that all ranks can read; also by
/// reading and writing each other's buffers. Each includes those before it.
enum class Access : std::uint8_t { messages, slots, shared };

/// Chunks of a vector, at most: beyond, they grow, so that plans of any size stay small.
inline constexpr std::uint64_t kMostChunks = 512;

/// The order of additions. fixed_tree: the tree over global replicas, whatever the layout. any: the
/// algorithm's own, the same on all ranks of one run but another with another number of ranks.
enum class Order : std::uint8_t { fixed_tree, any };

struct Terms;
struct Work;

struct Algorithm {
  Kind kind;
  std::string_view name;
  Access access;
  Order order;
  std::string_view summary;  // one line for `lockstep explain`
  /// Empty if the algorithm can serve this request on this layout, else the reason it cannot.
  std::string (*refuses)(const Request&, const Layout&);
  Plan (*make)(const Request&, const Layout&, int rank);
  /// What it makes the busiest rank do, for estimate() (cost.h).
  Work (*work)(const Terms&);
  /// Elements of a rank's slot that a plan takes, at most; null: none.
  std::uint64_t (*slot_elements)(const Request&, const Layout&) = nullptr;
};

/// All algorithms, grouped by kind, the most general one of each kind first.
std::span<const Algorithm> algorithms();
/// Those of one kind.
std::span<const Algorithm> algorithms(Kind kind);
/// nullptr if there is none of that name.
const Algorithm* find_algorithm(Kind kind, std::string_view name);

}  // namespace lockstep::plan
