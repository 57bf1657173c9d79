#include "coll/planner.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>

#include "plan/form.h"

namespace lockstep::coll {
namespace {

/// Plans are small beside the data they move; past this many different calls, or bytes of plans, all
/// are forgotten.
constexpr std::size_t kMaxKnown = 512;
constexpr std::size_t kMaxBytes = std::size_t{64} << 20;

}  // namespace

Planner::Planner(plan::Layout layout, int rank, std::size_t slot_bytes, Preferences preferences)
    : layout_(std::move(layout)),
      rank_(rank),
      slot_bytes_(slot_bytes),
      preferences_(std::move(preferences)) {}

std::size_t Planner::KeyHash::operator()(const Key& key) const noexcept {
  const std::uint64_t words[] = {static_cast<std::uint64_t>(key.kind),
                                 static_cast<std::uint64_t>(key.dtype),
                                 static_cast<std::uint64_t>(key.order),
                                 static_cast<std::uint64_t>(key.root),
                                 static_cast<std::uint64_t>(key.to),
                                 static_cast<std::uint64_t>(key.access),
                                 key.count};
  return XXH3_64bits_withSeed(key.counts.data(), key.counts.size() * sizeof(std::uint64_t),
                              XXH3_64bits(words, sizeof(words)));
}

bool Planner::matches(const Key& key, const Call& call, plan::Access access) noexcept {
  return key.kind == call.kind && key.access == access && key.dtype == call.dtype &&
         key.order == call.order && key.root == call.root && key.to == call.to &&
         key.count == call.count && key.counts == call.counts;
}

const PlannedCall& Planner::plan(const Call& call, plan::Access access) {
  if (latest_ != nullptr && matches(latest_->first, call, access)) return latest_->second;
  Key key{call.kind, access, call.dtype, call.order, call.root, call.to, call.count, call.counts};
  auto found = known_.find(key);
  if (found == known_.end()) {
    latest_ = nullptr;
    if (known_.size() >= kMaxKnown || known_bytes_ >= kMaxBytes) {
      known_.clear();
      known_bytes_ = 0;
    }
    found = known_.emplace(std::move(key), make(call, access)).first;
    known_bytes_ += plan::bytes_of(found->second.plan);
  }
  latest_ = &*found;
  return found->second;
}

PlannedCall Planner::make(const Call& call, plan::Access access) const {
  const std::uint64_t width = size_of(call.dtype);
  plan::Request request;
  request.kind = call.kind;
  request.count = call.count;
  request.counts = call.counts;
  if (request.counts.empty()) {
    request.counts.assign(static_cast<std::size_t>(layout_.ranks()), call.count);
  }
  request.root = std::max(call.root, 0);
  request.to = std::max(call.to, 0);
  request.accumulator = plan::is_reduction(call.kind) && accumulator_of(call.dtype) != call.dtype
                            ? plan::Accumulator::wide
                            : plan::Accumulator::same;
  request.chunk = plan::kChunkBytes / width;
  request.staged_chunk = staging().chunk_bytes / width;

  const plan::Situation situation{.layout = layout_,
                                  .access = access,
                                  .order = call.order,
                                  .element_bytes = width,
                                  .costs = preferences_.costs,
                                  .overrides = preferences_.overrides,
                                  .slot_bytes = slot_bytes_};
  PlannedCall planned;
  planned.algorithm = plan::select(request, situation).algorithm;
  planned.plan = planned.algorithm->make(request, layout_, rank_);
  const std::uint64_t chunks[] = {request.chunk, request.staged_chunk};
  const std::string_view name = planned.algorithm->name;
  planned.hash = XXH3_64bits_withSeed(
      request.counts.data(), request.counts.size() * sizeof(std::uint64_t),
      XXH3_64bits_withSeed(name.data(), name.size(), XXH3_64bits(chunks, sizeof(chunks))));
  return planned;
}

}  // namespace lockstep::coll
