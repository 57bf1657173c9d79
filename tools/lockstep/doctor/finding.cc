#include "doctor/finding.h"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>

namespace lockstep::tool {
namespace {

constexpr char kField = '\x1f';
constexpr char kFinding = '\x1e';

}  // namespace

std::string_view to_string(Verdict verdict) noexcept {
  switch (verdict) {
    case Verdict::ok:
      return "ok";
    case Verdict::warning:
      return "warning";
    case Verdict::problem:
      break;
  }
  return "problem";
}

bool has_problem(const Findings& findings) {
  return std::any_of(findings.begin(), findings.end(),
                     [](const Finding& finding) { return finding.verdict == Verdict::problem; });
}

std::string encode(const Findings& findings) {
  std::string text;
  for (const Finding& finding : findings) {
    text += fmt::format("{}{}{}{}{}{}{}{}", static_cast<int>(finding.verdict), kField,
                        finding.check, kField, finding.text, kField, finding.advice, kFinding);
  }
  return text;
}

Findings decode(const std::string& text, int rank) {
  Findings findings;
  std::istringstream stream(text);
  for (std::string one; std::getline(stream, one, kFinding);) {
    std::istringstream fields(one);
    std::string verdict;
    Finding finding;
    std::getline(fields, verdict, kField);
    std::getline(fields, finding.check, kField);
    std::getline(fields, finding.text, kField);
    std::getline(fields, finding.advice, kField);
    finding.verdict = verdict == "0"   ? Verdict::ok
                      : verdict == "1" ? Verdict::warning
                                       : Verdict::problem;
    finding.rank = rank;
    findings.push_back(std::move(finding));
  }
  return findings;
}

}  // namespace lockstep::tool
