#include "kernel/pass.h"

#include <cassert>
#include <cstring>

namespace lockstep::kernel {
namespace {

using Byte = std::uint8_t;

Steps find_steps(Lane lane, Combine combine, int leaves) {
  if (is_half(lane)) return find_half_steps(lane, combine, leaves);
  if (is_floating(lane)) return find_float_steps(lane, combine, leaves);
  return find_integer_steps(lane, combine, leaves);
}

/// Bytes of an element.
struct Sizes {
  std::size_t input;
  std::size_t target;
};
constexpr std::size_t kPartialSize = sizeof(float);

/// Results of one step, on their way to the targets.
struct Outbox {
  alignas(64) Byte target[kMaxStepBytes];
  alignas(64) Byte partial[kMaxStepBytes];

  /// Runs one step from these inputs into the box.
  void run(StepFunction steps, const Pass& pass, const void* const* inputs, std::size_t step) {
    void* targets[] = {target};
    void* partials[] = {partial};
    Pass one = pass;
    one.inputs = inputs;
    one.targets = targets;
    one.target_count = pass.target_count != 0 ? 1 : 0;
    one.partials = partials;
    one.partial_count = pass.partial_count != 0 ? 1 : 0;
    one.count = step;
    one.stores = Stores::cached;
    steps(one);
  }

  /// The first `count` results become elements `begin`... of the targets.
  void deliver(const Pass& pass, std::size_t target_size, std::size_t begin,
               std::size_t count) const {
    for (std::size_t t = 0; t < pass.target_count; ++t) {
      std::memcpy(static_cast<Byte*>(pass.targets[t]) + begin * target_size, target,
                  count * target_size);
    }
    for (std::size_t t = 0; t < pass.partial_count; ++t) {
      std::memcpy(static_cast<Byte*>(pass.partials[t]) + begin * kPartialSize, partial,
                  count * kPartialSize);
    }
  }
};

/// Targets of one pass that are written around the cache; each is a stream of its own.
constexpr std::size_t kMaxAroundCache = 64;

/// Less than one step: the inputs are padded with zeros.
void run_padded(const Steps& steps, const Pass& pass, int leaves, Sizes sizes) {
  alignas(64) Byte padded[kMaxLeaves][kMaxStepBytes];
  const void* inputs[kMaxLeaves];
  const std::size_t bytes = pass.count * sizes.input;
  for (int i = 0; i < leaves; ++i) {
    std::memset(padded[i], 0, kMaxStepBytes);
    std::memcpy(padded[i], pass.inputs[i], bytes);
    inputs[i] = padded[i];
  }
  Outbox box;
  box.run(steps.run, pass, inputs, steps.step);
  box.deliver(pass, sizes.target, 0, pass.count);
}

void run_any_count(const Steps& steps, const Pass& pass, int leaves, Sizes sizes) {
  assert(steps.run != nullptr);
  if (pass.count % steps.step == 0) return steps.run(pass);
  if (pass.count < steps.step) return run_padded(steps, pass, leaves, sizes);

  // The last step overlaps the one before it. It is read before anything is written, so that a
  // target may be an input, and written at the very end.
  const std::size_t last = pass.count - steps.step;
  const void* inputs[kMaxLeaves];
  for (int i = 0; i < leaves; ++i) {
    inputs[i] = static_cast<const Byte*>(pass.inputs[i]) + last * sizes.input;
  }
  Outbox box;
  box.run(steps.run, pass, inputs, steps.step);
  Pass whole = pass;
  whole.count -= pass.count % steps.step;
  steps.run(whole);
  box.deliver(pass, sizes.target, last, steps.step);
}

/// Whether all targets reach the beginning of a cache line with the same element.
bool can_be_led_to_a_line(const Pass& pass, std::size_t size) {
  const auto offset = [&](std::size_t t) {
    return reinterpret_cast<std::uintptr_t>(pass.targets[t]) % kLine;
  };
  if (pass.target_count > kMaxAroundCache || offset(0) % size != 0) return false;
  for (std::size_t t = 1; t < pass.target_count; ++t) {
    if (offset(t) != offset(0)) return false;
  }
  return true;
}

/// The targets are led to a cache line first. What cannot be aligned goes through the cache.
void run_around_cache(const Steps& steps, const Pass& pass, int leaves, Sizes sizes) {
  const auto address = reinterpret_cast<std::uintptr_t>(pass.targets[0]);
  Pass head = pass;
  head.stores = Stores::cached;
  if (!can_be_led_to_a_line(pass, sizes.target)) return run_any_count(steps, head, leaves, sizes);
  head.count = (kLine - address % kLine) % kLine / sizes.target;
  if (head.count == 0) return run_any_count(steps, pass, leaves, sizes);
  if (head.count >= pass.count) {
    head.count = pass.count;
    return run_any_count(steps, head, leaves, sizes);
  }
  run_any_count(steps, head, leaves, sizes);

  const void* inputs[kMaxLeaves];
  for (int i = 0; i < leaves; ++i) {
    inputs[i] = static_cast<const Byte*>(pass.inputs[i]) + head.count * sizes.input;
  }
  void* targets[kMaxAroundCache];
  for (std::size_t t = 0; t < pass.target_count; ++t) {
    targets[t] = static_cast<Byte*>(pass.targets[t]) + head.count * sizes.target;
  }
  Pass rest = pass;
  rest.inputs = inputs;
  rest.targets = targets;
  rest.count = pass.count - head.count;
  run_any_count(steps, rest, leaves, sizes);
}

}  // namespace

void run_pass(Lane lane, Combine combine, int leaves, const Pass& pass) {
  const auto run = pass.stores == Stores::cached ? run_any_count : run_around_cache;
  run(find_steps(lane, combine, leaves), pass, leaves, {size_of(lane), size_of(lane)});
}

void run_rounding(Lane lane, const Pass& pass) {
  run_any_count(find_rounding_steps(lane), pass, 1, {sizeof(float), size_of(lane)});
}

}  // namespace lockstep::kernel
