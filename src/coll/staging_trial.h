// StagingTrial: the ranks of a host find out together how values go through slots fastest between
// them (plan/staging.h), by adding up a vector in each way in groups of their own.
//
// Takes some milliseconds. Where ranks are more than processors nothing is measured.
#pragma once

#include <memory>

#include "coll/process_fabric.h"
#include "coll/session_impl.h"
#include "plan/staging.h"

namespace lockstep::coll {

class StagingTrial {
 public:
  /// `here` has the ranks of the host, `rank` is the caller's place among them. The rest is borrowed.
  StagingTrial(std::shared_ptr<ProcessFabric> fabric, transport::ShmHost& host, GroupSpec here,
               int rank, const SessionOptions& options, std::shared_ptr<Membership> membership);

  /// All ranks of the host call it, and get the same. Throws what an operation throws.
  plan::Staging fastest();

 private:
  /// A group of the ranks that stages that way.
  Session group(const plan::Staging& staging);
  /// Microseconds that one call takes on the slowest rank.
  double time(const plan::Staging& staging);
  /// Whether each rank has a processor.
  bool is_wanted();

  std::shared_ptr<ProcessFabric> fabric_;
  transport::ShmHost& host_;
  GroupSpec here_;
  int rank_;
  SessionOptions options_;
  std::shared_ptr<Membership> membership_;
  std::uint64_t groups_ = 0;
};

}  // namespace lockstep::coll
