// Field: the contestants that train one net, started when they are first asked for.
//
//   processes     ours, two processes with a replica each, shared memory between them
//   threads       ours, one process with two replicas
//   ddp           PyTorch's DistributedDataParallel over gloo, two processes
//   independent   two processes with plain libtorch that know nothing of each other
//   solo          two such processes, each with a replica of ours: only the exchange is missing
//   single        one process with plain libtorch
//   overlap       ours, two processes on two hosts with a line of 1 Gbit/s between them; gradients
//   no_overlap    are sent during backward, or after it
//
// All but ddp call tune_process_memory() first, unless "_defaults" is added to the name.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "bench/peers/networks.h"
#include "bench/train/contestant.h"

namespace lockstep::bench::train {

struct FieldOptions {
  std::string net;
  std::string programs;           // folder of our contestants' program
  std::string python;             // that has PyTorch; empty: none was needed
  std::int64_t bucket_bytes = 0;  // of `overlap`; 0: the library's choice
};

class Field {
 public:
  explicit Field(FieldOptions options);
  ~Field();
  Field(const Field&) = delete;
  Field& operator=(const Field&) = delete;

  [[nodiscard]] const std::string& net() const noexcept { return options_.net; }
  /// ContestantFailed if it cannot be started, or trains something else than the others.
  Contestant& contestant(const std::string& name);
  /// It has failed: ends its processes.
  void end(const std::string& name) { contestants_.erase(name); }

 private:
  [[nodiscard]] Launch launch(const std::string& name);
  [[nodiscard]] Launch::Process ours(const std::string& kind, const std::string& name,
                                     int rank) const;
  [[nodiscard]] Launch workers(const std::string& name, const std::vector<std::string>& addresses,
                               const peers::Command& more) const;
  [[nodiscard]] Launch workers_apart(const std::string& name);
  [[nodiscard]] Launch ddp() const;
  void compare_loss(const std::string& name, Contestant& contestant);

  FieldOptions options_;
  std::string directory_;
  std::optional<peers::Networks> networks_;
  std::map<std::string, std::unique_ptr<Contestant>> contestants_;
  std::map<std::string, double> first_losses_;
};

/// OPENBLAS_CORETYPE of all contestants: what the environment says, else by the processor's
/// instructions; empty: OpenBLAS decides.
std::string blas_kernels();

/// Can this interpreter import PyTorch with gloo?
bool has_torch(const std::string& python);

}  // namespace lockstep::bench::train
