// Examination: all checks of `lockstep doctor`, in their order, and what came of them.
//
//   1. what can be seen without others: place, key, names, cores, memory
//   2. who reaches whom (reach.h)
//   3. if all are there: join, compare, clocks, and every pair
// What fails ends no more than what depends on it.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "doctor/finding.h"
#include "doctor/pairs.h"

namespace lockstep::tool {

struct ExaminationOptions {
  std::string version;
  bool joins = true;
  /// For the ranks to reach each other, and again for them to join.
  std::chrono::nanoseconds timeout = std::chrono::seconds(30);
};

struct Diagnosis {
  int rank = 0;
  int size = 1;
  bool joined = false;         // findings are then those of all ranks, on every rank
  std::string transport = {};  // of the group
  Findings findings = {};
  std::vector<Pair> pairs = {};
};

Diagnosis examine(const ExaminationOptions& options);

}  // namespace lockstep::tool
