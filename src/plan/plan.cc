#include "plan/plan.h"

namespace lockstep::plan {

const char* to_string(Kind kind) noexcept {
  switch (kind) {
    case Kind::all_reduce:
      return "all_reduce";
    case Kind::reduce:
      return "reduce";
    case Kind::broadcast:
      return "broadcast";
    case Kind::all_gather:
      return "all_gather";
    case Kind::reduce_scatter:
      return "reduce_scatter";
    case Kind::gather:
      return "gather";
    case Kind::scatter:
      return "scatter";
    case Kind::all_to_all:
      return "all_to_all";
    case Kind::barrier:
      return "barrier";
    case Kind::send_receive:
      return "send_receive";
  }
  return "unknown";
}

}  // namespace lockstep::plan
