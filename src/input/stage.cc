#include "lockstep/detail/stage.h"

#include <fmt/format.h>

#include "lockstep/error.h"

namespace lockstep::detail {

namespace {

void explain_into(std::string& text, const Stage& stage, std::size_t depth) {
  text += fmt::format("{:{}}{}\n", "", 2 * depth, stage.describe());
  const std::vector<StagePtr> inputs = stage.inputs();
  // One input stays in the column, so that a long pipeline does not run off the page.
  const std::size_t inner = inputs.size() == 1 ? depth : depth + 1;
  for (const StagePtr& input : inputs) explain_into(text, *input, inner);
}

void signatures_into(std::vector<std::string>& lines, const Stage& stage, std::size_t depth) {
  const std::string own = stage.signature();
  if (!own.empty()) lines.push_back(std::string(2 * depth, ' ') + own);
  const std::vector<StagePtr> inputs = stage.inputs();
  const std::size_t inner = inputs.size() == 1 ? depth : depth + 1;
  for (const StagePtr& input : inputs) signatures_into(lines, *input, inner);
}

}  // namespace

std::string explain(const Stage& stage) {
  std::string text;
  explain_into(text, stage, 0);
  return text;
}

std::uint64_t mix(std::uint64_t a, std::uint64_t b) noexcept {
  // The finisher of splitmix64: every bit of both reaches every bit of the result.
  std::uint64_t z = a + 0x9e3779b97f4a7c15U * (b + 1);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
  return z ^ (z >> 31);
}

std::vector<std::string> signatures(const Stage& stage) {
  std::vector<std::string> lines;
  signatures_into(lines, stage, 0);
  return lines;
}

std::uint64_t fingerprint(const Stage& stage) {
  std::uint64_t value = 0;
  for (const std::string& line : signatures(stage)) {
    for (const char c : line) value = mix(value, static_cast<unsigned char>(c));
    value = mix(value, '\n');
  }
  return value;
}

AutoShardPolicy auto_shard_policy(const Stage& stage) {
  if (const auto policy = stage.auto_shard_policy()) return *policy;
  for (const StagePtr& input : stage.inputs()) {
    const AutoShardPolicy inner = auto_shard_policy(*input);
    if (inner != AutoShardPolicy::automatic) return inner;
  }
  return AutoShardPolicy::automatic;
}

void wrong_element_type(const Stage& stage) {
  throw InternalError(
      fmt::format("a stage ({}) was given an input of another type", stage.describe()));
}

}  // namespace lockstep::detail
