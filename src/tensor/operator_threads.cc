#include "tensor/operator_threads.h"

#include <ATen/Parallel.h>
#include <dlfcn.h>

#include <atomic>
#include <cstdlib>

#include "base/log.h"
#include "base/mutex.h"
#include "sys/topology.h"
#include "tensor/blas.h"

namespace lockstep::tensor {
namespace {

template <class Function>
Function* find(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_DEFAULT, name));
}

/// Numbers that belong to the calling thread. Null: the process has no such library.
struct ThreadSettings {
  // Of the OpenMP that libtorch uses: the first in the process's search order.
  int (*openmp_get)() = find<int()>("omp_get_max_threads");
  void (*openmp_set)(int) = find<void(int)>("omp_set_num_threads");
  /// Returns the number before; 0 stands for the process's.
  int (*mkl_exchange)(int) = find<int(int)>("MKL_Set_Num_Threads_Local");

  [[nodiscard]] bool has_openmp() const noexcept {
    return openmp_get != nullptr && openmp_set != nullptr;
  }
  static const ThreadSettings& get() {
    static const ThreadSettings found;
    return found;
  }
};

void warn_unless_followed(int count) {
  static std::atomic_flag warned;
  if (at::get_num_threads() == count || warned.test_and_set()) return;
  log_warning(
      "libtorch does not follow OpenMP (it was built without), so the number of threads inside an "
      "operation cannot be {} for a replica alone: it stays {}. Call at::set_num_threads({}) "
      "before the first operation",
      count, at::get_num_threads(), count);
}

void set_openmp(int count) {
  const ThreadSettings& settings = ThreadSettings::get();
  if (settings.has_openmp() && settings.openmp_get() != count) settings.openmp_set(count);
}

/// The number that a BLAS has for the whole process.
class ProcessBlas {
 public:
  static ProcessBlas& get() {
    static ProcessBlas only;
    return only;
  }

  void enter(int count) {
    if (!present_) return;
    const MutexLock lock(mutex_);
    if (scopes_++ == 0) {
      before_ = blas_threads();
      in_force_ = count;
      if (before_ != count) set_blas_threads(count);
    } else if (count != in_force_ && !warned_) {
      warned_ = true;
      log_warning(
          "replicas with {} and with {} threads compute at the same time, and the BLAS in use ({}) "
          "has one number for the process: both multiply matrices with {}. Give both strategies "
          "the same threads_per_replica, or install libopenblas0-openmp",
          in_force_, count, Blas::in_use().describe(), in_force_);
    }
  }

  void leave() {
    if (!present_) return;
    const MutexLock lock(mutex_);
    // A number that the program has set meanwhile stays.
    if (--scopes_ == 0 && before_ != in_force_ && blas_threads() == in_force_) {
      set_blas_threads(before_);
    }
  }

 private:
  const bool present_ = has_process_wide_threads(Blas::in_use().kind);
  Mutex mutex_;
  int scopes_ GUARDED_BY(mutex_) = 0;
  int before_ GUARDED_BY(mutex_) = 0;
  int in_force_ GUARDED_BY(mutex_) = 0;
  bool warned_ GUARDED_BY(mutex_) = false;
};

/// libtorch ignores a variable that is empty or has no positive number.
bool has_number(const char* variable) {
  const char* const text = std::getenv(variable);
  return text != nullptr && std::strtol(text, nullptr, 10) > 0;
}

}  // namespace

OperatorThreads::OperatorThreads(int count) : count_(count) {
  if (count_ <= 0) return;
  at::get_num_threads();  // libtorch sets the thread up now, and not over our setting later
  const ThreadSettings& settings = ThreadSettings::get();
  if (settings.has_openmp()) openmp_before_ = settings.openmp_get();
  set_openmp(count_);
  if (settings.mkl_exchange != nullptr) mkl_before_ = settings.mkl_exchange(count_);
  ProcessBlas::get().enter(count_);
  warn_unless_followed(count_);
}

OperatorThreads::~OperatorThreads() {
  if (count_ <= 0) return;
  const ThreadSettings& settings = ThreadSettings::get();
  ProcessBlas::get().leave();
  if (settings.mkl_exchange != nullptr) settings.mkl_exchange(mkl_before_);
  if (settings.has_openmp()) set_openmp(openmp_before_);
}

void set_operator_threads(int count) {
  at::get_num_threads();
  set_openmp(count);
  if (const ThreadSettings& settings = ThreadSettings::get(); settings.mkl_exchange != nullptr) {
    settings.mkl_exchange(count);
  }
  warn_unless_followed(count);
}

int default_operator_threads() {
  const int chosen = at::get_num_threads();
  // A number that the program has set and that is libtorch's default cannot be told from none.
  const bool by_user = has_number("OMP_NUM_THREADS") || has_number("MKL_NUM_THREADS") ||
                       chosen != at::intraop_default_num_threads();
  return by_user ? chosen : sys::usable_cores();
}

}  // namespace lockstep::tensor
