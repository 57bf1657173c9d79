#include "tests/processes/verdict.h"

#include <cstdlib>
#include <sstream>

namespace lockstep::processes {
namespace {

std::string value_of(const std::string& word, const std::string& name) {
  return word.rfind(name, 0) == 0 ? word.substr(name.size()) : std::string();
}

}  // namespace

std::optional<Verdict> verdict_in(const std::string& text) {
  std::istringstream lines(text);
  const std::string mark = "failed ";
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind(mark, 0) != 0) continue;
    std::istringstream words(line.substr(mark.size()));
    Verdict verdict;
    std::string culprits;
    std::string code;
    std::string at;
    words >> verdict.kind >> culprits >> code >> at;
    std::istringstream ranks(value_of(culprits, "culprits="));
    for (std::string rank; std::getline(ranks, rank, ',');) {
      verdict.culprits.push_back(std::stoi(rank));
    }
    verdict.code = value_of(code, "code=");
    verdict.at_us = std::strtoll(value_of(at, "at=").c_str(), nullptr, 10);
    std::getline(words, verdict.message);
    return verdict;
  }
  return std::nullopt;
}

std::optional<std::int64_t> number_after(const std::string& text, const std::string& words) {
  const std::size_t found = text.find(words);
  if (found == std::string::npos) return std::nullopt;
  return std::strtoll(text.c_str() + found + words.size(), nullptr, 10);
}

}  // namespace lockstep::processes
