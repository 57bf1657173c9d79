// ReplicaGenerator: random numbers that belong to one replica.
//
// libtorch's CPU generator is one for the whole process: two lanes that draw from it are never
// reproducible. While a Scope lives, every operation of its thread that takes an optional generator
// and was given none (dropout, rand, normal_, ...) draws from the scope's generator instead, inside
// other operations and modules, too. A generator that was given wins, unless it is the process-wide
// one, which is not touched: torch::manual_seed() and the default generator's seed and state are
// those of the scope's generator meanwhile (tensor/default_generator.h).
//
//   ReplicaGenerator generator(seed, replica);
//   {
//     const ReplicaGenerator::Scope scope(generator);
//     auto mask = at::bernoulli(p);                 // this replica's own
//   }
//
// Scopes nest: the inner one rules, the outer one is back afterwards. The generator must outlive
// its scopes. A generator is of the CPU; operations on other devices are left alone.
//
// How: the operators with such an argument have a kernel on a dispatch key that only scopes
// include. All other operators fall through that key, at no cost. The kernels are registered when
// the program is loaded, before there are threads.
//
// Threads: a scope belongs to its thread; a generator is used by one thread at a time.
#pragma once

#include <ATen/core/Generator.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <cstdint>

#include "lockstep/tensor.h"

namespace lockstep::tensor {

class ReplicaGenerator {
 public:
  /// Equal (seed, replica), equal numbers; `replica` is the global one.
  ReplicaGenerator(std::uint64_t seed, int replica);

  class Scope {
   public:
    explicit Scope(ReplicaGenerator& generator);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    const at::Generator* outer_;
    c10::impl::IncludeDispatchKeyGuard key_;
  };

  /// The process-wide generator again, inside a Scope; scopes inside a Pause work as usual.
  class Pause {
   public:
    Pause();
    ~Pause();
    Pause(const Pause&) = delete;
    Pause& operator=(const Pause&) = delete;

   private:
    const at::Generator* outer_;
  };

  /// To be passed to an operation by hand.
  [[nodiscard]] const at::Generator& generator() const noexcept { return generator_; }
  /// Starts over, as a new ReplicaGenerator(seed, replica).
  void reseed(std::uint64_t seed);
  /// Everything that decides the next numbers, as libtorch lays it out (a byte tensor).
  [[nodiscard]] Tensor state() const;
  /// InvalidUsage for what is not a state().
  void set_state(const Tensor& state);

 private:
  int replica_;
  at::Generator generator_;
};

/// Sets what get_state() of a generator gave; InvalidUsage for anything else.
void set_generator_state(at::Generator generator, const Tensor& state);

/// Both numbers, well mixed: other pairs give other seeds. A replica's generator has that of its
/// seed and its number.
std::uint64_t mixed_seed(std::uint64_t seed, std::int64_t number) noexcept;

}  // namespace lockstep::tensor
