#include "tests/sim_cluster/node.h"

#include <fmt/format.h>

#include <algorithm>

namespace lockstep::simulated {

Node::Node(const Schedule& schedule, int rank, bool hides_difference) : rank_(rank) {
  const std::vector<Task>& tasks = schedule.tasks_of(rank);
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    jobs_.push_back(std::make_unique<Job>(tasks[i], schedule.layout, rank, i + 1));
    if (hides_difference) jobs_.back()->set_descriptor(descriptor_of(schedule.tasks[i], i + 1));
  }
  if (jobs_.empty()) {
    phase_ = Phase::finished;
  } else {
    jobs_.front()->start(operation_);
  }
}

void Node::poll(transport::Link& link, int budget) {
  if (phase_ != Phase::working) return;
  switch (operation_.poll(link, budget)) {
    case coll::State::pending:
      return;
    case coll::State::failed:
      phase_ = Phase::failed;
      call_again(link);
      return;
    case coll::State::done:
      break;
  }
  if (++completed_ == jobs_.size()) {
    phase_ = Phase::finished;
  } else {
    jobs_[completed_]->start(operation_);
  }
}

void Node::call_again(transport::Link& link) {
  const Status cause = link.failure();
  coll::Operation again;
  jobs_.back()->start(again);
  if (again.poll(link) != coll::State::failed) complaint_ = "a call after the failure did not fail";
  if (!(link.failure() == cause)) complaint_ = "a call after the failure changed its cause";
}

std::string Node::check_outputs(const std::vector<std::vector<Bytes>>& expected,
                                std::size_t most) const {
  for (std::size_t i = 0; i < std::min({completed_, most, expected.size()}); ++i) {
    const auto output = jobs_[i]->output();
    const Bytes& right = expected[i][static_cast<std::size_t>(rank_)];
    if (!std::equal(output.begin(), output.end(), right.begin(), right.end())) {
      return fmt::format("rank {} has a wrong result in operation {}: {}", rank_, i + 1,
                         wire::describe(jobs_[i]->descriptor()));
    }
    if (!jobs_[i]->fence_intact()) {
      return fmt::format("rank {} was written behind its buffers in operation {}", rank_, i + 1);
    }
  }
  return {};
}

std::string Node::describe() const {
  if (phase_ == Phase::finished) return fmt::format("rank {} has finished", rank_);
  if (phase_ == Phase::failed) return fmt::format("rank {} has failed", rank_);
  return fmt::format("rank {} waits for rank {} in operation {} ({})", rank_,
                     operation_.waiting_for(), sequence(), wire::describe(descriptor()));
}

}  // namespace lockstep::simulated
