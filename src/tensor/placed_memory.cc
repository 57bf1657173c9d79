#include "tensor/placed_memory.h"

#include <ATen/ops/from_blob.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/GradMode.h>

#include <utility>

#include "lockstep/error.h"

namespace lockstep::tensor {

namespace {

/// Where this thread's backward passes may place what they compute.
thread_local PlacedMemory* current = nullptr;

}  // namespace

struct PlacedMemory::Placed {
  const Blocks* of;
  std::shared_ptr<void> block;
  std::shared_ptr<const char> ticket;

  static void drop(void* placed) { delete static_cast<Placed*>(placed); }
};

/// libtorch's own, but for what is placed.
class PlacingAllocator final : public c10::Allocator {
 public:
  explicit PlacingAllocator(c10::Allocator* usual) noexcept : usual_(usual) {}

  [[nodiscard]] c10::DataPtr allocate(std::size_t bytes) const override {
    if (current != nullptr && !c10::GradMode::is_enabled()) {
      if (auto placed = current->place(bytes)) {
        void* const data = placed->block.get();
        return {data, placed.release(), PlacedMemory::Placed::drop, c10::Device(c10::kCPU)};
      }
    }
    return usual_->allocate(bytes);
  }
  /// For those who want no DataPtr. Nobody in libtorch does; a block of ours would be refused
  /// there, since its context is not its data.
  [[nodiscard]] c10::DeleterFnPtr raw_deleter() const override { return usual_->raw_deleter(); }

  static void install() {
    // Tensors may be made until the process ends.
    static const auto* const installed = [] {
      auto* allocator = new PlacingAllocator(c10::GetCPUAllocator());
      c10::SetCPUAllocator(allocator);
      return allocator;
    }();
    (void)installed;
  }

 private:
  c10::Allocator* usual_;
};

PlacedMemory::PlacedMemory(Blocks::Source source)
    : blocks_(std::make_shared<Blocks>(std::move(source))) {}
PlacedMemory::~PlacedMemory() = default;

void PlacedMemory::expect(std::size_t bytes) {
  PlacingAllocator::install();
  const MutexLock lock(mutex_);
  ++expected_[bytes].tensors;
}

void PlacedMemory::forget(std::size_t bytes) noexcept {
  const MutexLock lock(mutex_);
  const auto found = expected_.find(bytes);
  if (found != expected_.end() && --found->second.tensors == 0) expected_.erase(found);
}

std::unique_ptr<PlacedMemory::Placed> PlacedMemory::place(std::size_t bytes) {
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
    return std::make_unique<Placed>(Placed{blocks_.get(), blocks_->take(bytes), std::move(ticket)});
  } catch (const Error&) {  // no memory of this kind is left
    return nullptr;
  }
}

bool PlacedMemory::holds(const Tensor& tensor) const noexcept {
  const c10::DataPtr& memory = tensor.storage().data_ptr();
  const auto* placed = static_cast<const Placed*>(
      memory.get_deleter() == &Placed::drop ? memory.get_context() : nullptr);
  return placed != nullptr && placed->of == blocks_.get() && tensor.data_ptr() == memory.get();
}

Tensor PlacedMemory::empty_like(const Tensor& like) {
  const bool dense = like.is_non_overlapping_and_dense();
  const std::size_t bytes = static_cast<std::size_t>(like.numel()) * like.itemsize();
  auto placed = std::make_unique<Placed>(Placed{blocks_.get(), blocks_->take(bytes), nullptr});
  void* const data = placed->block.get();
  return at::for_blob(data, like.sizes())
      .strides(dense ? at::OptionalIntArrayRef(like.strides()) : at::OptionalIntArrayRef())
      .context(placed.release(), Placed::drop)
      .options(like.options().requires_grad(false))
      .make_tensor();
}

PlacedMemory::Scope::Scope(PlacedMemory* memory) noexcept
    : before_(std::exchange(current, memory)) {}
PlacedMemory::Scope::~Scope() { current = before_; }

}  // namespace lockstep::tensor
