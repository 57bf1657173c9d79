// Trial: one collective of one size, as it is measured.
#pragma once

#include <cstdint>
#include <string>

#include "lockstep/coll/options.h"
#include "lockstep/dtype.h"
#include "lockstep/op.h"
#include "plan/plan.h"
#include "shape.h"

namespace lockstep::tool {

enum class Placement : std::uint8_t { out_of_place, in_place };
enum class Checking : std::uint8_t { off, on };
/// Whose memory the buffers are: Session::allocate's, or the rank's own.
enum class Owner : std::uint8_t { rank, session };

/// What the ranks are.
struct Ground {
  int hosts = 0;  // 0: threads of this process
  std::string transport = "threads";
};

struct Trial {
  plan::Kind kind = plan::Kind::all_reduce;
  DType dtype = DType::float32;
  Op op = Op::sum;
  Shape shape = {};
  int ranks = 2;
  int root = 0;
  int iterations = 20;
  int warmups = 5;
  Placement placement = Placement::out_of_place;
  Checking checking = Checking::on;
  Owner memory = Owner::rank;
  coll::SumOrder order = coll::SumOrder::fixed_tree;
  coll::WireType wire = coll::WireType::same;
  std::string algorithms = {};
  Ground ground = {};
};

}  // namespace lockstep::tool
