#include "engines/mpi/runtime.h"

#include <fmt/format.h>

#include <cstdlib>
#include <utility>
#include <vector>

#include "base/gate.h"
#include "engines/mpi/error.h"
#include "engines/mpi/job.h"

namespace lockstep::mpi {
namespace {

/// How often a request that takes long is looked at.
constexpr auto kLook = std::chrono::microseconds(200);

/// Between telling the other ranks of a failure and ending the job: they write their logs.
constexpr auto kLastWords = std::chrono::milliseconds(300);

const char* name_of(int level) {
  return level == MPI_THREAD_SINGLE ? "MPI_THREAD_SINGLE" : "MPI_THREAD_FUNNELED";
}

void finalise() {
  int over = 0;
  MPI_Finalized(&over);
  if (over == 0) MPI_Finalize();
}

}  // namespace

Runtime& Runtime::get() {
  static Runtime* const runtime = [] {
    int over = 0;
    MPI_Finalized(&over);
    if (over != 0) throw InvalidUsage("MPI is finalised: no session can be made any more");
    int begun = 0;
    MPI_Initialized(&begun);
    int level = MPI_THREAD_SINGLE;
    if (begun != 0) {
      MPI_Query_thread(&level);
    } else {
      check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &level), "MPI_Init_thread");
    }
    if (level < MPI_THREAD_SERIALIZED) {
      if (begun == 0) MPI_Finalize();
      throw Unsupported(fmt::format(
          "MPI {} {}, and the engine calls it from several threads, one at a time: initialise it "
          "with MPI_Init_thread and MPI_THREAD_SERIALIZED, or leave that to the engine",
          begun != 0 ? "was initialised with" : "offers only", name_of(level)));
    }
    // Lives as long as the process: it is what ends MPI.
    auto* const made = new Runtime;
    if (begun == 0) std::atexit(&finalise);
    return made;
  }();
  int over = 0;
  MPI_Finalized(&over);
  if (over != 0) throw InvalidUsage("MPI is finalised: no session can be made any more");
  return *runtime;
}

Runtime::Runtime() {
  check(MPI_Comm_rank(MPI_COMM_WORLD, &rank_), "MPI_Comm_rank");
  check(MPI_Comm_size(MPI_COMM_WORLD, &size_), "MPI_Comm_size");
  // Attributes of MPI_COMM_SELF are deleted first in MPI_Finalize, whoever calls it.
  const auto on_finalize = [](MPI_Comm, int, void* runtime, void*) {
    static_cast<Runtime*>(runtime)->end();
    return MPI_SUCCESS;
  };
  int key = MPI_KEYVAL_INVALID;
  check(MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, on_finalize, &key, nullptr),
        "MPI_Comm_create_keyval");
  check(MPI_Comm_set_attr(MPI_COMM_SELF, key, this), "MPI_Comm_set_attr");
}

void Runtime::complete(FunctionRef<int(MPI_Request*)> start, const char* call,
                       std::chrono::nanoseconds timeout) {
  const Deadline deadline = Deadline::after(timeout);
  MPI_Request request = MPI_REQUEST_NULL;
  {
    const MutexLock lock(mutex_);
    check(start(&request), call);
  }
  const auto done = [&] {
    const MutexLock lock(mutex_);
    int over = 0;
    check(MPI_Test(&request, &over, MPI_STATUS_IGNORE), call);
    return over != 0;
  };
  Gate nobody_knocks;
  while (!nobody_knocks.wait(done, earlier(deadline, Deadline::after(kLook)))) {
    if (!deadline.passed()) continue;
    mark_broken();
    throw Timeout(fmt::format(
        "rank {} has waited {:.1f} s for other ranks of MPI_COMM_WORLD to call mpi_session; MPI "
        "cannot give that up: this process ends the job when it exits",
        rank_, std::chrono::duration<double>(timeout).count()));
  }
}

MPI_Comm Runtime::duplicate_world(std::chrono::nanoseconds timeout) {
  // A static place: after a Timeout MPI may still write there.
  static MPI_Comm made = MPI_COMM_NULL;
  complete([](MPI_Request* request) { return MPI_Comm_idup(MPI_COMM_WORLD, &made, request); },
           "MPI_Comm_idup", timeout);
  const MutexLock lock(mutex_);
  check(MPI_Comm_set_errhandler(made, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  return made;
}

std::uint64_t Runtime::add(const std::shared_ptr<Job>& job, std::chrono::nanoseconds timeout) {
  bool first = false;
  {
    const MutexLock lock(mutex_);
    first = !mailbox_;
  }
  MPI_Comm comm = first ? duplicate_world(timeout) : MPI_COMM_NULL;
  const MutexLock lock(mutex_);
  if (first) mailbox_.emplace(comm);
  jobs_[++last_job_] = job;
  return last_job_;
}

void Runtime::remove(std::uint64_t job) noexcept {
  const MutexLock lock(mutex_);
  jobs_.erase(job);
}

void Runtime::send(const Notice& notice, int to) noexcept {
  const MutexLock lock(mutex_);
  if (mailbox_ && !ended_) mailbox_->send(notice, to);
}

void Runtime::deliver_notices() {
  std::vector<std::pair<std::shared_ptr<Job>, Notice>> arrived;
  {
    const MutexLock lock(mutex_);
    if (!mailbox_ || ended_) return;
    for (const Notice& notice : mailbox_->collect()) {
      const auto found = jobs_.find(notice.job);
      if (found == jobs_.end()) continue;
      if (auto job = found->second.lock()) arrived.emplace_back(std::move(job), notice);
    }
  }
  for (const auto& [job, notice] : arrived) job->receive(notice);
}

void Runtime::end() noexcept {
  std::vector<std::shared_ptr<Job>> open;
  {
    const MutexLock lock(mutex_);
    for (const auto& [number, job] : jobs_) {
      if (auto alive = job.lock()) open.push_back(std::move(alive));
    }
  }
  // Sessions that outlive main: whoever waits for this rank must not wait for ever.
  for (const auto& job : open) job->end_of_process();
  if (broken()) {
    Gate nobody_knocks;
    nobody_knocks.wait([] { return false; }, Deadline::after(kLastWords));
  }
  const MutexLock lock(mutex_);
  ended_ = true;
  if (broken()) {
    MPI_Abort(MPI_COMM_WORLD, EXIT_FAILURE);
    return;
  }
  if (mailbox_) mailbox_->close();
}

}  // namespace lockstep::mpi
