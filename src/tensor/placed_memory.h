// PlacedMemory: libtorch computes gradients right into memory of ours, say such as other processes
// can read, so that nobody has to copy them there.
//
//   PlacedMemory::place_gradients_of_this_process();  // tune_process_memory() does
//   PlacedMemory memory(source);
//   memory.expect(weight.nbytes());
//   { const PlacedMemory::Scope scope(&memory); loss.backward(); }
//   memory.holds(weight.grad());  // true, unless libtorch did it in another way
//
// libtorch does not say what it allocates for. So inside of a Scope every tensor of an expected
// size that a backward pass makes on this thread gets a block of ours, unless the pass is recorded
// itself (create_graph), and as long as there are not far more of them than expected; the rest lies
// where it always did. Which of both a tensor got can only be told by looking. Blocks that are
// dropped wait for the next tensor of their size.
//
// Without place_gradients_of_this_process() nothing is placed but what empty_like() makes.
//
// Threads: any. Tensors may outlive it.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>

#include "lockstep/tensor.h"

namespace lockstep::tensor {

class PlacedMemory {
 public:
  class Blocks;  // in the source

  /// Makes a block of so many bytes; throws if it cannot.
  using Source = std::function<std::shared_ptr<void>(std::size_t)>;

  /// Replaces libtorch's allocator for as long as the process lives; once. libtorch reads it
  /// without a lock: no other thread may use tensors meanwhile.
  static void place_gradients_of_this_process();

  explicit PlacedMemory(Source source);
  ~PlacedMemory();
  PlacedMemory(const PlacedMemory&) = delete;
  PlacedMemory& operator=(const PlacedMemory&) = delete;

  /// One tensor more, or less, of this size is going to be made again and again.
  void expect(std::size_t bytes);
  void forget(std::size_t bytes) noexcept;
  /// Places nothing any more, and uses no block again.
  void close() noexcept;

  /// Whether a tensor lies here, with nothing else in its block.
  [[nodiscard]] bool holds(const Tensor& tensor) const;

  /// One that does: of `like`'s shape and, if that is dense, its strides; not written. Throws what
  /// the source throws.
  [[nodiscard]] Tensor empty_like(const Tensor& like);

  /// What this thread's backward passes compute in the meantime may be placed here; null: nowhere.
  class Scope {
   public:
    explicit Scope(PlacedMemory* memory) noexcept;
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    PlacedMemory* before_;
  };

 private:
  friend class PlacingAllocator;
  std::shared_ptr<Blocks> blocks_;  // also of every tensor that lives here
};

}  // namespace lockstep::tensor
