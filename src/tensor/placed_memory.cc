#include "tensor/placed_memory.h"

#include <ATen/ops/from_blob.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/GradMode.h>

#include <unordered_map>
#include <utility>

#include "lockstep/error.h"

namespace lockstep::tensor {

namespace {

/// Where this thread's backward passes may place what they compute.
thread_local PlacedMemory* current = nullptr;

/// A block that a tensor has.
struct Placed {
  const Blocks* of;
  std::shared_ptr<void> block;
  std::shared_ptr<const char> ticket;
};

/// All blocks that tensors have, by address: some of libtorch (oneDNN's side) gives memory back by
/// its address alone, and does not say whose it is.
class Register {
 public:
  /// The address, under which it is dropped.
  void* add(Placed placed) {
    const MutexLock lock(mutex_);
    void* const data = placed.block.get();
    placed_.emplace(data, std::move(placed));
    return data;
  }
  [[nodiscard]] const Blocks* owner_of(const void* data) {
    const MutexLock lock(mutex_);
    const auto found = placed_.find(data);
    return found != placed_.end() ? found->second.of : nullptr;
  }
  /// False if it is none of these.
  bool drop(const void* data) {
    Placed dropped;  // gives the block back when the lock is free again
    const MutexLock lock(mutex_);
    const auto found = placed_.find(data);
    if (found == placed_.end()) return false;
    dropped = std::move(found->second);
    placed_.erase(found);
    return true;
  }

 private:
  Mutex mutex_;
  std::unordered_map<const void*, Placed> placed_ GUARDED_BY(mutex_);
};

Register& placed_blocks() {
  static auto* const all = new Register;  // tensors may be dropped until the process ends
  return *all;
}

}  // namespace

/// libtorch's own, but for what is placed.
class PlacingAllocator final : public c10::Allocator {
 public:
  [[nodiscard]] c10::DataPtr allocate(std::size_t bytes) const override {
    if (current != nullptr && !c10::GradMode::is_enabled()) {
      if (void* const data = current->place(bytes)) return {data, data, drop, c10::kCPU};
    }
    return usual_->allocate(bytes);
  }
  [[nodiscard]] c10::DeleterFnPtr raw_deleter() const override { return drop; }

  static void drop(void* data) {
    if (!placed_blocks().drop(data)) installed().usual_->raw_deleter()(data);
  }

  static PlacingAllocator& installed() {
    static auto* const allocator = [] {
      auto* placing = new PlacingAllocator(c10::GetCPUAllocator());
      c10::SetCPUAllocator(placing);
      return placing;
    }();
    return *allocator;
  }

 private:
  explicit PlacingAllocator(c10::Allocator* usual) noexcept : usual_(usual) {}

  c10::Allocator* usual_;
};

PlacedMemory::PlacedMemory(Blocks::Source source)
    : blocks_(std::make_shared<Blocks>(std::move(source))) {}
PlacedMemory::~PlacedMemory() = default;

void PlacedMemory::expect(std::size_t bytes) {
  PlacingAllocator::installed();
  const MutexLock lock(mutex_);
  ++expected_[bytes].tensors;
}

void PlacedMemory::forget(std::size_t bytes) noexcept {
  const MutexLock lock(mutex_);
  const auto found = expected_.find(bytes);
  if (found != expected_.end() && --found->second.tensors == 0) expected_.erase(found);
}

void* PlacedMemory::place(std::size_t bytes) {
  std::shared_ptr<const char> ticket;
  {
    const MutexLock lock(mutex_);
    const auto found = expected_.find(bytes);
    if (found == expected_.end()) return nullptr;
    // A gradient, and one of the last step that somebody still looks at.
    if (found->second.ticket.use_count() > 2L * found->second.tensors) return nullptr;
    ticket = found->second.ticket;
  }
  try {
    return placed_blocks().add({blocks_.get(), blocks_->take(bytes), std::move(ticket)});
  } catch (const Error&) {  // no memory of this kind is left
    return nullptr;
  }
}

bool PlacedMemory::holds(const Tensor& tensor) const {
  const c10::DataPtr& memory = tensor.storage().data_ptr();
  return memory.get_deleter() == &PlacingAllocator::drop && tensor.data_ptr() == memory.get() &&
         placed_blocks().owner_of(memory.get()) == blocks_.get();
}

Tensor PlacedMemory::empty_like(const Tensor& like) {
  const bool dense = like.is_non_overlapping_and_dense();
  const std::size_t bytes = static_cast<std::size_t>(like.numel()) * like.itemsize();
  void* const data = placed_blocks().add({blocks_.get(), blocks_->take(bytes), nullptr});
  return at::for_blob(data, like.sizes())
      .strides(dense ? at::OptionalIntArrayRef(like.strides()) : at::OptionalIntArrayRef())
      .context(data, PlacingAllocator::drop)
      .options(like.options().requires_grad(false))
      .make_tensor();
}

PlacedMemory::Scope::Scope(PlacedMemory* memory) noexcept
    : before_(std::exchange(current, memory)) {}
PlacedMemory::Scope::~Scope() { current = before_; }

}  // namespace lockstep::tensor
