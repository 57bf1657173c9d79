// Runtime: MPI in this process. MPI itself is one per process, and so is this.
//
// MPI calls are serialised by one lock: MPI_THREAD_SERIALIZED suffices. It is held for one call
// that does not block, with two exceptions: making a group's communicator, for which all members have
// come already (job.cc), and the end of the process, to which all ranks come.
//
// What it has initialised it finalises when the process exits. If an operation was left unfinished,
// which MPI can neither cancel nor finalise over, MPI_Finalize, whoever calls it, is MPI_Abort.
#pragma once

#include <mpi.h>

#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <optional>

#include "base/function_ref.h"
#include "base/mutex.h"
#include "engines/mpi/mailbox.h"
#include "engines/mpi/types.h"

namespace lockstep::mpi {

class Job;

class Runtime {
 public:
  /// Initialises MPI on the first call. Unsupported, InvalidUsage: see mpi_session().
  static Runtime& get();
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  [[nodiscard]] Mutex& mutex() noexcept { return mutex_; }
  [[nodiscard]] const Ops& ops() const noexcept { return ops_; }
  [[nodiscard]] int rank() const noexcept { return rank_; }
  [[nodiscard]] int size() const noexcept { return size_; }

  /// A copy of MPI_COMM_WORLD whose errors are returned. All ranks call it; Timeout if they do not.
  MPI_Comm duplicate_world(std::chrono::nanoseconds timeout);
  /// Has a request started under the lock and waits for it. Timeout with these words.
  void complete(FunctionRef<int(MPI_Request*)> start, const char* call,
                std::chrono::nanoseconds timeout);

  /// An operation cannot be completed any more: the process will end the job.
  void mark_broken() noexcept { broken_.store(true); }
  [[nodiscard]] bool broken() const noexcept { return broken_.load(); }
  /// Communicators may be freed: nothing uses them and MPI is not finalised.
  [[nodiscard]] bool tidy() const noexcept { return !broken_.load() && !ended_.load(); }

  /// Notices go to the job of their number, as long as that exists.
  std::uint64_t add(const std::shared_ptr<Job>& job, std::chrono::nanoseconds timeout);
  void remove(std::uint64_t job) noexcept;
  void send(const Notice& notice, int to) noexcept;
  void deliver_notices();

 private:
  Runtime();
  /// MPI_Finalize has been called.
  void end() noexcept;

  Mutex mutex_;
  Ops ops_;
  int rank_ = 0;
  int size_ = 1;
  std::atomic<bool> broken_ = false;
  std::atomic<bool> ended_ = false;
  std::optional<Mailbox> mailbox_ GUARDED_BY(mutex_);
  std::uint64_t last_job_ GUARDED_BY(mutex_) = 0;
  std::map<std::uint64_t, std::weak_ptr<Job>> jobs_ GUARDED_BY(mutex_);
};

}  // namespace lockstep::mpi
