// The two list notations of Slurm's variables.
//
//   nodes    n[1-2],m5,o[03-04,6]      n1 n2 m5 o03 o04 o6; several brackets in a name multiply
//   counts   3(x2),2,1                 3 3 2 1
//
// ConfigError with the byte for what is malformed, and for lists of more than 65,536 items: nothing
// is allocated before a number was checked.
#pragma once

#include <string>
#include <vector>

#include "cluster/text.h"

namespace lockstep::cluster {

std::vector<std::string> expand_nodes(const Variable& variable);
std::vector<int> expand_counts(const Variable& variable);

/// Names in order, with the numbers in them compared as numbers: n2 before n10.
bool natural_less(const std::string& a, const std::string& b);

}  // namespace lockstep::cluster
