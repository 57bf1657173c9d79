// What the comparison of parameters costs that GradientOptions::check_every asks for.
#pragma once

#include "bench/support/paired.h"

namespace lockstep::bench {

/// check_parameters() of 25 M parameters beside a step of the same net, on two replicas.
PairedResult parameter_check_vs_step();

}  // namespace lockstep::bench
