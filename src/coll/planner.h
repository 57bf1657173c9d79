// Planner: the plan for a call, chosen once and kept. Not thread-safe; used by whoever drives the
// session.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "coll/call.h"
#include "coll/preferences.h"

namespace lockstep::coll {

struct PlannedCall {
  plan::Plan plan;
  const plan::Algorithm* algorithm = nullptr;
  /// Goes into the descriptor: ranks that would execute different plans disagree.
  std::uint64_t hash = 0;
};

class Planner {
 public:
  Planner(plan::Layout layout, int rank, std::size_t slot_bytes, Preferences preferences);

  /// `access` is what the call's buffers allow. Valid until the next call.
  const PlannedCall& plan(const Call& call, plan::Access access);
  [[nodiscard]] const plan::Layout& layout() const noexcept { return layout_; }
  [[nodiscard]] plan::Staging staging() const noexcept {
    return preferences_.costs.staging.value_or(plan::Staging{});
  }

 private:
  struct Key {
    plan::Kind kind;
    plan::Access access;
    DType dtype;
    plan::Order order;
    int root;
    int to;
    std::uint64_t count;
    std::vector<std::uint64_t> counts;
    friend bool operator==(const Key&, const Key&) = default;
  };
  struct KeyHash {
    std::size_t operator()(const Key& key) const noexcept;
  };
  static bool matches(const Key& key, const Call& call, plan::Access access) noexcept;
  PlannedCall make(const Call& call, plan::Access access) const;

  plan::Layout layout_;
  int rank_;
  std::size_t slot_bytes_;
  Preferences preferences_;
  std::unordered_map<Key, PlannedCall, KeyHash> known_;
  std::size_t known_bytes_ = 0;                                // of their plans
  const std::pair<const Key, PlannedCall>* latest_ = nullptr;  // most calls repeat the one before
};

}  // namespace lockstep::coll
