// Verdict: what a rank of rank_program said about its failure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::processes {

struct Verdict {
  std::string kind;
  std::vector<int> culprits;
  std::string code;
  std::int64_t at_us = 0;  // of the steady clock
  std::string message;

  [[nodiscard]] bool same_as(const Verdict& other) const {
    return kind == other.kind && culprits == other.culprits;
  }
};

/// The first failure in what a rank wrote.
std::optional<Verdict> verdict_in(const std::string& text);

/// The number that follows these words; nothing if they are not there.
std::optional<std::int64_t> number_after(const std::string& text, const std::string& words);

}  // namespace lockstep::processes
