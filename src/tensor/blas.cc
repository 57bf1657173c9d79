#include "tensor/blas.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <atomic>
#include <filesystem>
#include <memory>

#include "base/log.h"

namespace lockstep::tensor {
namespace {

// What openblas_get_parallel() answers.
constexpr int kOpenblasSerial = 0;
constexpr int kOpenblasPthread = 1;
constexpr int kOpenblasOpenmp = 2;

// The library that sgemm_ is in, with those it stands on: Debian's libblas.so.3 of OpenBLAS has the
// BLAS only, and finds the functions about threads in libopenblas beside it.
class Library {
 public:
  Library() {
    // What libtorch got when it was loaded: the first in the process's search order.
    Dl_info info = {};
    void* sgemm = dlsym(RTLD_DEFAULT, "sgemm_");
    if (sgemm == nullptr || dladdr(sgemm, &info) == 0 || info.dli_fname == nullptr) return;
    std::error_code unresolved;
    path_ = std::filesystem::canonical(info.dli_fname, unresolved).string();
    if (unresolved) path_ = info.dli_fname;
    handle_.reset(dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD));
  }

  [[nodiscard]] const std::string& path() const noexcept { return path_; }

  /// Null if the library has no such function.
  template <class Function>
  [[nodiscard]] Function* find(const char* name) const noexcept {
    if (path_.empty()) return nullptr;
    // No handle: a BLAS inside the program itself.
    return reinterpret_cast<Function*>(dlsym(handle_ ? handle_.get() : RTLD_DEFAULT, name));
  }

 private:
  struct Close {
    void operator()(void* handle) const { dlclose(handle); }
  };
  std::string path_;
  std::unique_ptr<void, Close> handle_;
};

BlasKind kind_of(const Library& library) {
  if (library.path().empty()) return BlasKind::unknown;
  if (auto* parallel = library.find<int()>("openblas_get_parallel")) {
    switch (parallel()) {
      case kOpenblasSerial:
        return BlasKind::openblas_serial;
      case kOpenblasPthread:
        return BlasKind::openblas_pthread;
      case kOpenblasOpenmp:
        return BlasKind::openblas_openmp;
      default:
        return BlasKind::unknown;
    }
  }
  if (library.find<void()>("bli_thread_set_num_threads") != nullptr) return BlasKind::blis;
  if (library.find<void()>("MKL_Set_Num_Threads") != nullptr) return BlasKind::mkl;
  // The reference BLAS has nothing but BLAS in it, and so has ATLAS, under the same name.
  const std::filesystem::path path(library.path());
  const bool named_blas = path.filename().string().rfind("libblas.so", 0) == 0;
  const bool atlas = library.path().find("atlas") != std::string::npos;
  return named_blas && !atlas ? BlasKind::reference : BlasKind::unknown;
}

std::string version_of(const Library& library) {
  for (const char* name : {"openblas_get_config", "bli_info_get_version_str"}) {
    if (auto* version = library.find<const char*()>(name)) return version();
  }
  return {};
}

/// Functions of a BLAS that has one number of threads for the process, looked for once; the others
/// are null.
struct ProcessThreads {
  int (*of_openblas)() = nullptr;
  void (*set_openblas)(int) = nullptr;
  std::int64_t (*of_blis)() = nullptr;
  void (*set_blis)(std::int64_t) = nullptr;

  static const ProcessThreads& get() {
    static const ProcessThreads found;
    return found;
  }

 private:
  ProcessThreads() {
    const Library library;
    const BlasKind kind = kind_of(library);
    if (kind == BlasKind::openblas_pthread) {
      of_openblas = library.find<int()>("openblas_get_num_threads");
      set_openblas = library.find<void(int)>("openblas_set_num_threads");
    } else if (kind == BlasKind::blis) {
      of_blis = library.find<std::int64_t()>("bli_thread_get_num_threads");
      set_blis = library.find<void(std::int64_t)>("bli_thread_set_num_threads");
    }
  }
};

}  // namespace

std::string_view to_string(BlasKind kind) noexcept {
  switch (kind) {
    case BlasKind::openblas_pthread:
      return "OpenBLAS (pthreads)";
    case BlasKind::openblas_openmp:
      return "OpenBLAS (OpenMP)";
    case BlasKind::openblas_serial:
      return "OpenBLAS (serial)";
    case BlasKind::blis:
      return "BLIS";
    case BlasKind::mkl:
      return "MKL";
    case BlasKind::reference:
      return "reference BLAS";
    case BlasKind::unknown:
      break;
  }
  return "unknown BLAS";
}

Blas Blas::in_use() {
  const Library library;
  return {.kind = kind_of(library), .path = library.path(), .version = version_of(library)};
}

std::string Blas::describe() const {
  std::string text(to_string(kind));
  if (!path.empty()) text += ", " + path;
  if (!version.empty()) text += ", " + version;
  return text;
}

bool has_process_wide_threads(BlasKind kind) noexcept {
  return kind == BlasKind::openblas_pthread || kind == BlasKind::blis;
}

int blas_threads() {
  const ProcessThreads& threads = ProcessThreads::get();
  if (threads.of_openblas != nullptr) return threads.of_openblas();
  if (threads.of_blis != nullptr) return static_cast<int>(threads.of_blis());
  return 0;
}

void set_blas_threads(int count) {
  const ProcessThreads& threads = ProcessThreads::get();
  if (threads.set_openblas != nullptr) threads.set_openblas(count);
  if (threads.set_blis != nullptr) threads.set_blis(count);
}

BlasUse BlasUse::here(int lanes, int threads_per_lane) {
  return {
      .lanes = lanes, .threads_per_lane = threads_per_lane, .processor = sys::Processor::here()};
}

std::string blas_advice(const Blas& blas, BlasUse use) {
  if (blas.kind == BlasKind::reference) {
    return fmt::format(
        "libtorch multiplies matrices with the reference BLAS ({}), which is many times slower "
        "than "
        "others; install libopenblas0-openmp (Debian's alternatives then choose it)",
        blas.path);
  }
  if (blas.kind == BlasKind::openblas_openmp && use.lanes > 1 && use.threads_per_lane > 1) {
    return fmt::format(
        "{} lanes with {} threads each take turns in OpenBLAS (OpenMP) ({}); use one thread for "
        "each "
        "replica, processes instead of lanes, or BLIS (libblis4-openmp)",
        use.lanes, use.threads_per_lane, blas.path);
  }
  if (const std::string kernels = sys::better_openblas_kernels(blas.version, use.processor);
      !kernels.empty()) {
    return fmt::format(
        "OpenBLAS ({}) does not know this processor and multiplies matrices with kernels of an old "
        "one, several times slower than it could: call lockstep::choose_blas_kernels(argv) first "
        "in main(), or set {}={} in the environment, for every process alike, or take a newer "
        "OpenBLAS",
        blas.version, sys::kOpenblasKernels, kernels);
  }
  return {};
}

void warn_about_blas(BlasUse use) {
  const std::string advice = blas_advice(Blas::in_use(), use);
  static std::atomic_flag warned;
  if (!advice.empty() && !warned.test_and_set()) log_warning("{}", advice);
}

}  // namespace lockstep::tensor
