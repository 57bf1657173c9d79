// What `lockstep doctor` prints.
#pragma once

#include <string>

#include "doctor/examination.h"

namespace lockstep::tool {

/// A line for each finding, those that ranks share once; then the pairs.
std::string diagnosis_text(const Diagnosis& diagnosis);
std::string diagnosis_json(const Diagnosis& diagnosis);

}  // namespace lockstep::tool
