// Node: one rank of a simulated cluster: its list of jobs, its link, and where it stands.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "coll/operation.h"
#include "tests/sim_cluster/job.h"
#include "tests/sim_cluster/schedule.h"
#include "transport/link.h"

namespace lockstep::simulated {

enum class Phase : std::uint8_t { working, finished, failed };

class Node {
 public:
  /// `hides_difference`: the rank sends the descriptors of the schedule's tasks, whatever it does.
  Node(const Schedule& schedule, int rank, bool hides_difference);

  /// One poll of the operation at hand, then whatever follows from it.
  void poll(transport::Link& link, int budget);
  [[nodiscard]] Phase phase() const noexcept { return phase_; }
  [[nodiscard]] int rank() const noexcept { return rank_; }
  /// The rank it waits for; kNobody if it could go on, or is not at work.
  [[nodiscard]] int waiting_for() const noexcept {
    return phase_ == Phase::working ? operation_.waiting_for() : transport::kNobody;
  }
  [[nodiscard]] std::size_t completed() const noexcept { return completed_; }
  [[nodiscard]] std::uint64_t sequence() const noexcept { return completed_ + 1; }
  [[nodiscard]] const wire::Descriptor& descriptor() const {
    return jobs_[completed_]->descriptor();
  }
  /// Set once a later call did not fail at once with the same cause.
  [[nodiscard]] const std::string& complaint() const noexcept { return complaint_; }

  /// Compares the outputs of jobs completed, of the first `most`; empty: all right.
  std::string check_outputs(const std::vector<std::vector<Bytes>>& expected,
                            std::size_t most) const;
  [[nodiscard]] std::string describe() const;

 private:
  void call_again(transport::Link& link);

  int rank_;
  std::vector<std::unique_ptr<Job>> jobs_;
  std::size_t completed_ = 0;
  coll::Operation operation_;
  Phase phase_ = Phase::working;
  std::string complaint_;
};

}  // namespace lockstep::simulated
