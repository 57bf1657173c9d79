#include "strategy/meet_before_throwing.h"

namespace lockstep::detail {

void meet_before_throwing(Workers* workers) noexcept {
  if (workers == nullptr) return;
  try {
    workers->barrier("what every worker has found");
  } catch (const Error&) {  // another one has met everybody and thrown already
  }
}

}  // namespace lockstep::detail
