#include "engines/mpi/group.h"

#include <algorithm>

#include "sys/topology.h"
#include "transport/left_group.h"

namespace lockstep::mpi {
namespace {

/// Pauses between looks at a request that takes long: they grow from the first to the last.
constexpr Duration kFirstPause = std::chrono::microseconds(20);
constexpr Duration kLastPause = std::chrono::microseconds(200);

int position(const std::vector<int>& members, int rank) {
  return static_cast<int>(std::find(members.begin(), members.end(), rank) - members.begin());
}

}  // namespace

Group::Group(std::shared_ptr<Job> job, coll::GroupSpec spec, int rank,
             std::chrono::nanoseconds timeout)
    : job_(std::move(job)), spec_(std::move(spec)), rank_(rank) {
  const auto here = std::count(spec_.hosts.begin(), spec_.hosts.end(),
                               spec_.hosts[static_cast<std::size_t>(rank)]);
  spin_ = SpinPolicy::for_threads(static_cast<int>(here), sys::usable_processors());
  if (spec_.purpose == coll::Purpose::collectives) {
    comm_ = job_->open(spec_, timeout);
    return;
  }
  const Job::Circle parent = job_->circle(spec_.parent);
  comm_ = parent.comm;
  peer_ = position(parent.members, member(1 - rank));
  // Messages of both directions share a communicator.
  tag_ = member(0) < member(1) ? 0 : 1;
}

Group::~Group() { leave(); }

void Group::fail_together(const Status& why) noexcept { job_->fail(why, spec_.members); }

void Group::quiesce() noexcept {
  if (current_ != nullptr) job_->runtime().mark_broken();
}

bool Group::spin(FunctionRef<bool()> done) {
  return Gate::poll([&] { return done() || failed(); }, spin_);
}

bool Group::wait(int /*peer*/, FunctionRef<bool()> done, Deadline deadline) {
  for (Duration pause = kFirstPause;; pause = std::min(2 * pause, kLastPause)) {
    if (done() || failed()) return true;
    job_->runtime().deliver_notices();
    look_for_the_gone();
    if (failed()) return true;
    if (deadline.passed()) return false;
    job_->gate().wait([this] { return failed(); }, earlier(deadline, Deadline::after(pause)));
  }
}

void Group::look_for_the_gone() {
  if (current_ == nullptr) return;
  for (int peer = 0; peer < size(); ++peer) {
    if (peer == rank_) continue;
    auto done_there = job_->left(spec_.id, member(peer));
    // Who leaves a group leaves its messages first, if there were any.
    if (!done_there && spec_.purpose == coll::Purpose::messages &&
        job_->left(spec_.parent, member(peer))) {
      done_there = 0;
    }
    if (!done_there || *done_there >= current_->sequence) continue;
    job_->fail(transport::left_group(
        {.peer = member(peer), .rank = member(rank_), .finished_at = done_there}, *current_));
    return;
  }
}

void Group::leave() noexcept {
  if (std::exchange(left_, true)) return;
  job_->tell_left(spec_, completed_);
  if (spec_.purpose == coll::Purpose::collectives) job_->close(spec_.id);
}

}  // namespace lockstep::mpi
