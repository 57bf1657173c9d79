// OperatorThreads: how many threads libtorch and its BLAS may take inside one operation of the
// calling thread, for the length of a scope. Never derived from the layout: another number gives
// other bits.
//
//   { const OperatorThreads alone(1); at::mm(a, b); }   // by this thread only
//
// at::set_num_threads() is not used: it changes the process, and rebuilds a pool of threads
// (milliseconds). OpenMP's number belongs to the calling thread and costs nanoseconds; libtorch,
// oneDNN and an OpenBLAS built for OpenMP follow it. MKL has such a number, too. OpenBLAS with
// threads of its own, and BLIS, have one number for the process: the first scope sets it, the last
// one puts it back. Scopes of different numbers at the same time use the first one's there, which
// is a warning.
//
// A scope belongs to its thread; any number of threads may have one.
#pragma once

namespace lockstep::tensor {

class OperatorThreads {
 public:
  /// 0 leaves everything as it is.
  explicit OperatorThreads(int count);
  ~OperatorThreads();
  OperatorThreads(const OperatorThreads&) = delete;
  OperatorThreads& operator=(const OperatorThreads&) = delete;

 private:
  int count_;
  int openmp_before_ = 0;
  int mkl_before_ = 0;
};

/// The same for the rest of the calling thread's life, without what the process has only one of:
/// for threads that lockstep starts.
void set_operator_threads(int count);

/// For the only replica of a job: the user's number (OMP_NUM_THREADS, MKL_NUM_THREADS,
/// at::set_num_threads), else as many as the process may use cores.
int default_operator_threads();

}  // namespace lockstep::tensor
