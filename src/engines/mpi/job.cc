#include "engines/mpi/job.h"

#include <fmt/format.h>

#include <algorithm>

#include "coll/generation.h"
#include "engines/mpi/error.h"

namespace lockstep::mpi {
namespace {

constexpr const char* kNoWayOn =
    "; MPI can neither give up an operation nor go on without a rank: this process ends the whole "
    "job (MPI_Abort) when it exits";

}  // namespace

std::shared_ptr<Job> Job::form(std::chrono::nanoseconds timeout) {
  Runtime& runtime = Runtime::get();
  if (runtime.broken()) {
    throw InvalidUsage(
        "a former session of this process has left MPI operations unfinished: the job has to be "
        "started anew");
  }
  auto job = std::make_shared<Job>(runtime);
  job->number_ = runtime.add(job, timeout);
  job->world_ = runtime.duplicate_world(timeout);
  return job;
}

Job::Job(Runtime& runtime) : runtime_(runtime), generation_(++coll::last_generation) {}

Job::~Job() {
  runtime_.remove(number_);
  if (!runtime_.tidy() || world_ == MPI_COMM_NULL) return;
  const MutexLock lock(runtime_.mutex());
  MPI_Comm_free(&world_);
}

void Job::fail(const Status& why, std::span<const int> know) noexcept {
  Notice notice;
  try {
    Status told = why;
    if (why.kind() == ErrorKind::timeout) {
      told = {why.kind(), why.code(), why.message() + kNoWayOn, why.culprits()};
    }
    if (!failure_.set(told)) return;
    notice.set_cause(told);
  } catch (...) {
    if (!failure_.set(why)) return;
    notice.set_cause(why);
  }
  gate_.notify();
  notice.job = number_;
  notice.rank = runtime_.rank();
  for (int rank = 0; rank < runtime_.size(); ++rank) {
    const bool knows = std::find(know.begin(), know.end(), rank) != know.end();
    if (!knows && rank != runtime_.rank()) runtime_.send(notice, rank);
  }
}

MPI_Comm Job::open(const coll::GroupSpec& spec) {
  Circle circle{world_, spec.members};
  if (spec.id != coll::kWorld) {
    const MutexLock lock(runtime_.mutex());
    MPI_Group all = MPI_GROUP_NULL;
    MPI_Group some = MPI_GROUP_NULL;
    check(MPI_Comm_group(world_, &all), "MPI_Comm_group");
    check(MPI_Group_incl(all, static_cast<int>(spec.members.size()), spec.members.data(), &some),
          "MPI_Group_incl");
    // The tag keeps groups apart that threads of a process form at the same time.
    const int tag = static_cast<int>(spec.id % 32768);
    check(MPI_Comm_create_group(world_, some, tag, &circle.comm), "MPI_Comm_create_group");
    check(MPI_Comm_set_errhandler(circle.comm, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
    MPI_Group_free(&some);
    MPI_Group_free(&all);
  }
  const MutexLock lock(mutex_);
  circles_[spec.id] = circle;
  return circle.comm;
}

void Job::close(std::uint64_t group) noexcept {
  MPI_Comm comm = MPI_COMM_NULL;
  {
    const MutexLock lock(mutex_);
    const auto found = circles_.find(group);
    if (found == circles_.end()) return;
    comm = found->second.comm;
    circles_.erase(found);
  }
  // The world's makes further groups.
  if (!runtime_.tidy() || comm == world_) return;
  const MutexLock lock(runtime_.mutex());
  MPI_Comm_free(&comm);
}

Job::Circle Job::circle(std::uint64_t group) {
  const MutexLock lock(mutex_);
  return circles_.at(group);
}

void Job::tell_left(const coll::GroupSpec& spec, std::uint64_t completed) noexcept {
  if (failed()) return;
  Notice notice;
  notice.kind = Notice::Kind::left;
  notice.job = number_;
  notice.rank = runtime_.rank();
  notice.group = spec.id;
  notice.completed = completed;
  for (const int member : spec.members) {
    if (member != runtime_.rank()) runtime_.send(notice, member);
  }
}

std::optional<std::uint64_t> Job::left(std::uint64_t group, int member) {
  const MutexLock lock(mutex_);
  const auto found = left_.find({group, member});
  if (found == left_.end()) return std::nullopt;
  return found->second;
}

void Job::receive(const Notice& notice) {
  if (notice.kind == Notice::Kind::left) {
    const MutexLock lock(mutex_);
    left_[{notice.group, notice.rank}] = notice.completed;
    return;
  }
  failure_.set(notice.cause());
  gate_.notify();
}

void Job::end_of_process() noexcept {
  try {
    fail({ErrorKind::cancelled,
          Code::cancelled,
          fmt::format("the process of rank {} has ended with its session open", runtime_.rank()),
          {runtime_.rank()}});
  } catch (...) {
    fail({ErrorKind::cancelled, Code::cancelled, {}});
  }
}

}  // namespace lockstep::mpi
