// What reading, writing and scattering share: where the calling thread stands, seen from a
// variable, and how all copies are reached from there.
#pragma once

#include <fmt/format.h>

#include <functional>
#include <string>
#include <string_view>

#include "strategy/thread_context.h"
#include "strategy/variable_state.h"

namespace lockstep::detail {

[[noreturn]] inline void wrong_value(const std::string& message) { throw InvalidUsage(message); }

struct Standing {
  enum class Place {
    plain,     // a variable of no strategy: one tensor, wherever it is used
    replica,   // inside a step function: `index` is the replica's copy
    updating,  // inside update(): `index` is the copy being updated
    cross,     // for all copies
  };
  Place place;
  int index = 0;
};
/// InvalidUsage under another strategy than the variable's, and where this replica has no copy.
Standing standing(const VariableState& state);

/// The copy on a device; -1 if there is none.
int index_on(const VariableState& state, const Device& device);

inline const Tensor& component(const VariableState& state, int index) {
  return state.components[static_cast<std::size_t>(index)];
}

/// Runs fn(copy, target) on every copy, each on its lane.
void on_copies(const Variable& variable, const char* method,
               const std::function<void(const Tensor&, const UpdateTarget&)>& fn);

/// A copy of what the first replica of all workers has.
Tensor of_first_replica(const VariableState& state, const Tensor& first_here);

/// The only replica has nobody to disagree with.
bool writes_alone(const VariableState& state);
/// InvalidUsage for a variable without aggregation that is written inside a step function.
void require_aggregation(const VariableState& state, std::string_view method);

/// In the merge function: two methods may stand on one line, where their places are the same.
template <class How>
void check_agreed(const Variable& variable, const PerReplica<How>& hows) {
  for (int i = 1; i < hows.size(); ++i) {
    if (hows[i] == hows[0]) continue;
    wrong_context(fmt::format("replica {} calls {} of variable {} where replica 0 calls {}", i,
                              name_of(hows[i]), variable.name(), name_of(hows[0])));
  }
}

}  // namespace lockstep::detail
