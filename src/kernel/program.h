// Program: a reduction of any shape, run as passes.
//
// One pass does it all if the inputs are of one form and the merges are the fixed tree over at most
// kMaxLeaves inputs. Otherwise the elements are taken block by block: within a block every whole
// subtree is a pass whose result waits in a scratch block until it is merged, and the last pass
// stores to the targets. The bits are those of the merges either way.
//
// Private to the kernel. Lives for one call; allocates only for very many targets or a very deep
// stack.
#pragma once

#include <cstddef>
#include <memory>

#include "kernel/pass.h"
#include "kernel/reduce.h"

namespace lockstep::kernel {

/// merges[leaf] of the fixed tree over `leaves`.
int tree_merge(int leaf, int leaves) noexcept;

/// An array on the stack if it is short, on the heap otherwise.
template <class T, std::size_t inline_size>
class SmallArray {
 public:
  explicit SmallArray(std::size_t size)
      : heap_(size > inline_size ? std::make_unique<T[]>(size) : nullptr) {}
  T* data() noexcept { return heap_ ? heap_.get() : inline_; }
  T& operator[](std::size_t i) noexcept { return data()[i]; }

 private:
  T inline_[inline_size];
  std::unique_ptr<T[]> heap_;
};

class Program {
 public:
  explicit Program(const Reduction& reduction);
  void run();

 private:
  /// Inputs that one pass folds, and the merges that follow it.
  struct Group {
    int leaves;
    int merges;
  };
  /// The operands of one pass.
  struct Operands {
    Lane lane;
    Combine combine;
    int leaves;
    const void* const* inputs;
    const double* weights;
  };

  [[nodiscard]] int inputs() const noexcept { return static_cast<int>(reduction_.inputs.size()); }
  [[nodiscard]] Lane lane_of_input(int i) const noexcept;
  [[nodiscard]] bool same_form(int a, int b) const noexcept;
  [[nodiscard]] bool is_one_pass() const noexcept;
  [[nodiscard]] bool outgrows_cache() const noexcept;
  [[nodiscard]] Group group_at(int first) const noexcept;
  [[nodiscard]] std::size_t stack_depth() const noexcept;

  void run_block(std::size_t begin, std::size_t count);
  void fold_into(void* slot, const Operands& operands, std::size_t count) const;
  void fold_into_targets(const Operands& operands, std::size_t begin, std::size_t count,
                         Stores stores = Stores::cached);
  [[nodiscard]] std::byte* slot(std::size_t i) const noexcept { return scratch_ + i * slot_bytes_; }

  const Reduction& reduction_;
  Lane lane_;
  Lane partial_lane_;
  Combine leaf_combine_;
  Combine combine_;
  std::size_t count_;  // lanes: complex numbers are two
  std::size_t values_ = 0;
  std::size_t partials_ = 0;
  SmallArray<std::byte*, 16> targets_;  // values, then partials
  SmallArray<void*, 17> moved_;         // the same for the block at hand, and one for its result
  std::byte* scratch_ = nullptr;        // stack of blocks; the last one is for rounding
  std::size_t slots_ = 0;
  std::size_t slot_bytes_ = 0;
  const void** stack_ = nullptr;
};

}  // namespace lockstep::kernel
