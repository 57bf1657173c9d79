// Group: this rank's end of a group that MPI connects. Waiting is asking MPI again and again: it
// has nothing to sleep on. While it waits, a rank also reads notices, so that a failure elsewhere
// or a rank that has left ends the wait.
#pragma once

#include <chrono>
#include <memory>

#include "coll/group_spec.h"
#include "engines/mpi/job.h"
#include "transport/group_end.h"
#include "wire/descriptor.h"

namespace lockstep::mpi {

class Group final : public transport::GroupEnd {
 public:
  /// `timeout`: how long to wait for the other members to make it.
  Group(std::shared_ptr<Job> job, coll::GroupSpec spec, int rank, std::chrono::nanoseconds timeout);
  ~Group() override;

  [[nodiscard]] Job& job() noexcept { return *job_; }
  [[nodiscard]] const coll::GroupSpec& spec() const noexcept { return spec_; }
  /// For messages the parent group's, in which peer() is the other one and tag() the direction.
  [[nodiscard]] MPI_Comm comm() const noexcept { return comm_; }
  [[nodiscard]] int peer() const noexcept { return peer_; }
  [[nodiscard]] int tag() const noexcept { return tag_; }

  /// An operation has begun or is over: requests are under way in between.
  void begin(const wire::Descriptor& descriptor) noexcept { current_ = &descriptor; }
  void completed() noexcept {
    current_ = nullptr;
    ++completed_;
  }
  /// What all members of the group have found at the same time.
  void fail_together(const Status& why) noexcept;

  [[nodiscard]] int rank() const noexcept override { return rank_; }
  [[nodiscard]] int size() const noexcept override {
    return static_cast<int>(spec_.members.size());
  }
  [[nodiscard]] int member(int rank) const noexcept override {
    return spec_.members[static_cast<std::size_t>(rank)];
  }
  [[nodiscard]] bool failed() const noexcept override { return job_->failed(); }
  [[nodiscard]] Status failure() const override { return job_->failure(); }
  void fail(const Status& why) noexcept override { job_->fail(why); }
  void quiesce() noexcept override;
  bool spin(FunctionRef<bool()> done) override;
  bool wait(int peer, FunctionRef<bool()> done, Deadline deadline) override;
  void leave() noexcept override;

 private:
  void look_for_the_gone();

  std::shared_ptr<Job> job_;
  coll::GroupSpec spec_;
  int rank_;
  MPI_Comm comm_ = MPI_COMM_NULL;
  int peer_ = -1;
  int tag_ = 0;
  SpinPolicy spin_;
  const wire::Descriptor* current_ = nullptr;
  std::uint64_t completed_ = 0;
  bool left_ = false;
};

}  // namespace lockstep::mpi
