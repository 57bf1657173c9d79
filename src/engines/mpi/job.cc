#include "engines/mpi/job.h"

#include <fmt/format.h>

#include <algorithm>

#include "coll/generation.h"
#include "coll/long_wait.h"
#include "engines/mpi/error.h"

namespace lockstep::mpi {
namespace {

constexpr const char* kNoWayOn =
    "; MPI can neither give up an operation nor go on without a rank: this process ends the whole "
    "job (MPI_Abort) when it exits";

/// Apart from those of messages, which are few.
constexpr int kFirstMeetingTag = 1024;
constexpr std::uint64_t kMeetingTags = 16384;
constexpr auto kGrace = std::chrono::seconds(1);
/// How often a rank that waits for others looks.
constexpr auto kLook = std::chrono::microseconds(200);

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
  // Before any rank can leave it again: all still tell each other where they are.
  Circle everybody{job->world_, {}};
  for (int rank = 0; rank < runtime.size(); ++rank) everybody.members.push_back(rank);
  const MutexLock lock(job->mutex_);
  job->circles_[coll::kWorld] = std::move(everybody);
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

MPI_Comm Job::open(const coll::GroupSpec& spec, std::chrono::nanoseconds timeout) {
  if (spec.id == coll::kWorld) return world_;
  {
    const MutexLock lock(mutex_);
    circles_[spec.id] = {MPI_COMM_NULL, spec.members};  // who leaves it from now on is noted
  }
  try {
    meet(spec, timeout);
    const MPI_Comm comm = make_communicator(spec);
    const MutexLock lock(mutex_);
    return circles_[spec.id].comm = comm;
  } catch (...) {
    forget(spec.id);
    throw;
  }
}

MPI_Comm Job::make_communicator(const coll::GroupSpec& spec) {
  MPI_Group all = MPI_GROUP_NULL;
  MPI_Group some = MPI_GROUP_NULL;
  MPI_Comm comm = MPI_COMM_NULL;
  const MutexLock lock(runtime_.mutex());
  check(MPI_Comm_group(world_, &all), "MPI_Comm_group");
  check(MPI_Group_incl(all, static_cast<int>(spec.members.size()), spec.members.data(), &some),
        "MPI_Group_incl");
  // The tag keeps groups apart that threads of a process form at the same time.
  const int tag = static_cast<int>(spec.id % 32768);
  check(MPI_Comm_create_group(world_, some, tag, &comm), "MPI_Comm_create_group");
  check(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  MPI_Group_free(&some);
  MPI_Group_free(&all);
  return comm;
}

/// Empty messages: to the first member that one has come, and from it that all have.
struct Job::Meeting {
  std::vector<MPI_Request> requests;
  std::vector<int> peers;  // for whom each of them waits

  void receive(int rank, int tag, MPI_Comm comm) {
    peers.push_back(rank);
    check(
        MPI_Irecv(nullptr, 0, MPI_BYTE, rank, tag, comm, &requests.emplace_back(MPI_REQUEST_NULL)),
        "MPI_Irecv");
  }
  void send(int rank, int tag, MPI_Comm comm) {
    peers.push_back(rank);
    check(
        MPI_Isend(nullptr, 0, MPI_BYTE, rank, tag, comm, &requests.emplace_back(MPI_REQUEST_NULL)),
        "MPI_Isend");
  }
};

// MPI_Comm_create_group() waits for all members without an end, and nothing else of MPI can be called
// meanwhile: it is called when all have come. A barrier of the parent's would have to keep the order
// of its other operations.
void Job::meet(const coll::GroupSpec& spec, std::chrono::nanoseconds timeout) {
  const int tag = kFirstMeetingTag + static_cast<int>(spec.id % kMeetingTags);
  const int own = runtime_.rank();
  const int first = spec.members.front();
  const auto others = std::span(spec.members).subspan(1);
  Meeting meeting;
  if (own != first) {
    {
      const MutexLock lock(runtime_.mutex());
      meeting.send(first, tag, world_);
      meeting.receive(first, tag, world_);
    }
    // The first member knows who has not come: it is to say so.
    return wait_for(meeting, spec, timeout + kGrace);
  }
  {
    const MutexLock lock(runtime_.mutex());
    for (const int member : others) meeting.receive(member, tag, world_);
  }
  wait_for(meeting, spec, timeout);
  {
    const MutexLock lock(runtime_.mutex());
    for (const int member : others) meeting.send(member, tag, world_);
  }
  wait_for(meeting, spec, timeout);
}

void Job::wait_for(Meeting& meeting, const coll::GroupSpec& spec,
                   std::chrono::nanoseconds timeout) {
  const Deadline deadline = Deadline::after(timeout);
  std::vector<int> missing;
  const auto all_are_there = [&] {
    missing.clear();
    const MutexLock lock(runtime_.mutex());
    for (std::size_t i = 0; i < meeting.requests.size(); ++i) {
      int there = 0;
      check(MPI_Test(&meeting.requests[i], &there, MPI_STATUS_IGNORE), "MPI_Test");
      if (there == 0) missing.push_back(meeting.peers[i]);
    }
    missing.erase(std::unique(missing.begin(), missing.end()), missing.end());
    return missing.empty();
  };
  while (!all_are_there()) {
    runtime_.deliver_notices();
    // One that has left the parent without having come will not come any more.
    for (const int rank : missing) {
      if (runtime_.rank() != spec.members.front() || !left(spec.parent, rank)) continue;
      fail({ErrorKind::peer_lost,
            Code::failed_precondition,
            fmt::format("rank {} has left the group (its session was closed) instead of making "
                        "the group of a split with rank {}",
                        rank, runtime_.rank()),
            {rank}});
    }
    if (!failed() && deadline.passed()) {
      fail({ErrorKind::timeout, Code::deadline_exceeded,
            fmt::format("rank {} has waited {:.1f} s for {} to make the group of a split",
                        runtime_.rank(), std::chrono::duration<double>(timeout).count(),
                        coll::names_of(missing)),
            missing});
    }
    if (failed()) {
      runtime_.mark_broken();  // these requests stay unfinished
      raise(failure());
    }
    gate_.wait([this] { return failed(); }, earlier(deadline, Deadline::after(kLook)));
  }
  meeting.requests.clear();
  meeting.peers.clear();
}

void Job::forget(std::uint64_t group) noexcept {
  const MutexLock lock(mutex_);
  circles_.erase(group);
  std::erase_if(left_, [&](const auto& each) { return each.second.home == group; });
}

void Job::close(std::uint64_t group) noexcept {
  MPI_Comm comm = MPI_COMM_NULL;
  {
    const MutexLock lock(mutex_);
    const auto found = circles_.find(group);
    if (found == circles_.end()) return;
    comm = found->second.comm;
  }
  forget(group);
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
  notice.home = spec.purpose == coll::Purpose::messages ? spec.parent : spec.id;
  notice.completed = completed;
  for (const int member : spec.members) {
    if (member != runtime_.rank()) runtime_.send(notice, member);
  }
}

std::optional<std::uint64_t> Job::left(std::uint64_t group, int member) {
  const MutexLock lock(mutex_);
  const auto found = left_.find({group, member});
  if (found == left_.end()) return std::nullopt;
  return found->second.completed;
}

void Job::receive(const Notice& notice) {
  if (notice.kind == Notice::Kind::left) {
    const MutexLock lock(mutex_);
    // Of a group that this rank has closed itself nobody asks any more.
    if (circles_.count(notice.home) == 0) return;
    left_[{notice.group, notice.rank}] = {notice.home, notice.completed};
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
