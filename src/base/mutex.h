// Mutex with clang's thread-safety annotations: which data a lock guards is checked by the compiler
// (-Wthread-safety). Locks are short and never held over user code or I/O.
#pragma once

#include <mutex>

#if defined(__clang__)
#define LOCKSTEP_THREAD_ANNOTATION(x) __attribute__((x))
#else
#define LOCKSTEP_THREAD_ANNOTATION(x)
#endif
#define GUARDED_BY(mutex) LOCKSTEP_THREAD_ANNOTATION(guarded_by(mutex))
#define REQUIRES(mutex) LOCKSTEP_THREAD_ANNOTATION(requires_capability(mutex))

namespace lockstep {

class LOCKSTEP_THREAD_ANNOTATION(capability("mutex")) Mutex {
 public:
  void lock() LOCKSTEP_THREAD_ANNOTATION(acquire_capability()) { mutex_.lock(); }
  void unlock() LOCKSTEP_THREAD_ANNOTATION(release_capability()) { mutex_.unlock(); }

 private:
  std::mutex mutex_;
};

class LOCKSTEP_THREAD_ANNOTATION(scoped_lockable) MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) LOCKSTEP_THREAD_ANNOTATION(acquire_capability(mutex))
      : mutex_(mutex) {
    mutex_.lock();
  }
  ~MutexLock() LOCKSTEP_THREAD_ANNOTATION(release_capability()) { mutex_.unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex& mutex_;
};

}  // namespace lockstep
