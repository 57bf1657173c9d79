// Finding: the outcome of one check of `lockstep doctor`, and how ranks hand theirs to each other.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lockstep::tool {

enum class Verdict : unsigned char { ok, warning, problem };
std::string_view to_string(Verdict verdict) noexcept;

struct Finding {
  Verdict verdict = Verdict::ok;
  std::string check;   // one word: names, ports, key, ...
  std::string text;    // what was found
  std::string advice;  // what to do; empty if nothing
  int rank = 0;        // that found it
  friend bool operator==(const Finding&, const Finding&) = default;
};

using Findings = std::vector<Finding>;

bool has_problem(const Findings& findings);

/// As text for another rank. The rank itself is not part of it.
std::string encode(const Findings& findings);
Findings decode(const std::string& text, int rank);

}  // namespace lockstep::tool
