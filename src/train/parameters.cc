#include "train/parameters.h"

#include "strategy/variable_state.h"

namespace lockstep::train {

int Parameters::number_of(const Variable& variable) const {
  for (int p = 0; p < count(); ++p) {
    if (&variables[static_cast<std::size_t>(p)].state() == &variable.state()) return p;
  }
  return -1;
}

}  // namespace lockstep::train
