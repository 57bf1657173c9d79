#include "tensor/placed_memory.h"

#include <ATen/ops/from_blob.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/GradMode.h>

#include <atomic>
#include <exception>
#include <limits>
#include <map>
#include <new>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/mutex.h"

namespace lockstep::tensor {

/// By size. Made and freed outside of the lock: that may take the system's time.
class PlacedMemory::Blocks {
 public:
  explicit Blocks(Source source) : source_(std::move(source)) {}

  void expect(std::size_t bytes) {
    const MutexLock lock(mutex_);
    if (closed_) return;
    ++sizes_[bytes].expected;
    find_least();
  }

  void forget(std::size_t bytes) noexcept {
    std::vector<std::shared_ptr<void>> freed;  // when the lock is free again
    const MutexLock lock(mutex_);
    const auto found = sizes_.find(bytes);
    if (found == sizes_.end() || --found->second.expected > 0) return;
    freed.swap(found->second.waiting);
    if (found->second.used == 0) sizes_.erase(found);
    find_least();
  }

  void close() noexcept {
    std::map<std::size_t, Size> freed;
    const MutexLock lock(mutex_);
    closed_ = true;
    freed.swap(sizes_);
    find_least();
  }

  /// Null if none of this size is expected, or too many are used already, or none can be had.
  std::shared_ptr<void> take_expected(std::size_t bytes) noexcept {
    if (bytes < least_.load(std::memory_order_relaxed)) return nullptr;
    try {
      {
        const MutexLock lock(mutex_);
        const auto found = sizes_.find(bytes);
        if (found == sizes_.end() || found->second.used >= most(found->second)) return nullptr;
      }
      return take(bytes);
    } catch (const std::exception&) {  // none of this kind; there is other memory
      return nullptr;
    }
  }

  std::shared_ptr<void> take(std::size_t bytes) {
    {
      const MutexLock lock(mutex_);
      if (!closed_) {
        Size& size = sizes_[bytes];
        ++size.used;
        if (!size.waiting.empty()) {
          std::shared_ptr<void> block = std::move(size.waiting.back());
          size.waiting.pop_back();
          return block;
        }
      }
    }
    try {
      return source_(bytes);
    } catch (...) {
      give_back(bytes, nullptr);
      throw;
    }
  }

  void give_back(std::size_t bytes, std::shared_ptr<void> block) noexcept {
    const std::shared_ptr<void> freed = std::move(block);  // if it does not wait
    const MutexLock lock(mutex_);
    const auto found = sizes_.find(bytes);
    if (found == sizes_.end()) return;  // closed
    Size& size = found->second;
    --size.used;
    if (size.used == 0 && size.expected == 0) {
      sizes_.erase(found);
    } else if (freed && static_cast<int>(size.waiting.size()) + size.used < most(size)) {
      try {
        size.waiting.push_back(freed);
      } catch (const std::bad_alloc&) {  // not even for a note of it
      }
    }
  }

 private:
  struct Size {
    int expected = 0;
    int used = 0;
    std::vector<std::shared_ptr<void>> waiting = {};
  };

  /// A gradient each, and one of the last step that somebody still looks at.
  static int most(const Size& size) noexcept { return 2 * size.expected; }

  void find_least() noexcept REQUIRES(mutex_) {
    least_.store(sizes_.empty() ? kNone : sizes_.begin()->first, std::memory_order_relaxed);
  }

  static constexpr std::size_t kNone = std::numeric_limits<std::size_t>::max();

  Source source_;
  std::atomic<std::size_t> least_ = kNone;  // size: most allocations are smaller
  Mutex mutex_;
  std::map<std::size_t, Size> sizes_ GUARDED_BY(mutex_);
  bool closed_ GUARDED_BY(mutex_) = false;
};

/// libtorch's own allocator, but for what is placed.
class PlacingAllocator final : public c10::Allocator {
 public:
  static PlacingAllocator& installed() {
    static auto* const allocator = [] {  // tensors may be dropped until the process ends
      auto* placing = new PlacingAllocator(c10::GetCPUAllocator());
      c10::SetCPUAllocator(placing);
      return placing;
    }();
    return *allocator;
  }

  /// Where this thread's backward passes may place what they compute.
  static thread_local PlacedMemory* current;

  [[nodiscard]] c10::DataPtr allocate(std::size_t bytes) const override {
    if (current != nullptr && !c10::GradMode::is_enabled()) {
      const auto& blocks = current->blocks_;
      if (auto block = blocks->take_expected(bytes)) {
        void* const data = installed().add(blocks, std::move(block), bytes);
        return {data, data, drop, c10::kCPU};
      }
    }
    return usual_->allocate(bytes);
  }
  /// Some of libtorch (oneDNN's side) gives memory back by its address alone.
  [[nodiscard]] c10::DeleterFnPtr raw_deleter() const override {
    return usual_->raw_deleter() != nullptr ? drop : nullptr;
  }

  /// The address, by which it is dropped.
  void* add(const std::shared_ptr<PlacedMemory::Blocks>& of, std::shared_ptr<void> block,
            std::size_t bytes) {
    void* const data = block.get();
    const MutexLock lock(mutex_);
    placed_.emplace(data, Placed{of, std::move(block), bytes});
    return data;
  }

  [[nodiscard]] const void* owner_of(const void* data) const {
    const MutexLock lock(mutex_);
    const auto found = placed_.find(data);
    return found != placed_.end() ? found->second.of.get() : nullptr;
  }

  static void drop(void* data) {
    if (data == nullptr) return;
    PlacingAllocator& allocator = installed();
    Placed dropped;
    {
      const MutexLock lock(allocator.mutex_);
      if (const auto found = allocator.placed_.find(data); found != allocator.placed_.end()) {
        dropped = std::move(found->second);
        allocator.placed_.erase(found);
      }
    }
    if (dropped.of) {
      dropped.of->give_back(dropped.bytes, std::move(dropped.block));
    } else {
      allocator.usual_->raw_deleter()(data);
    }
  }

 private:
  /// A block that a tensor has.
  struct Placed {
    std::shared_ptr<PlacedMemory::Blocks> of;
    std::shared_ptr<void> block;
    std::size_t bytes = 0;
  };

  explicit PlacingAllocator(c10::Allocator* usual) noexcept : usual_(usual) {}

  c10::Allocator* usual_;
  mutable Mutex mutex_;
  std::unordered_map<const void*, Placed> placed_ GUARDED_BY(mutex_);
};

thread_local PlacedMemory* PlacingAllocator::current = nullptr;

PlacedMemory::PlacedMemory(Source source) : blocks_(std::make_shared<Blocks>(std::move(source))) {
  PlacingAllocator::installed();
}
PlacedMemory::~PlacedMemory() { close(); }

void PlacedMemory::expect(std::size_t bytes) { blocks_->expect(bytes); }
void PlacedMemory::forget(std::size_t bytes) noexcept { blocks_->forget(bytes); }
void PlacedMemory::close() noexcept { blocks_->close(); }

bool PlacedMemory::holds(const Tensor& tensor) const {
  const c10::Storage& storage = tensor.storage();
  const c10::DataPtr& memory = storage.data_ptr();
  return memory.get_deleter() == &PlacingAllocator::drop && tensor.data_ptr() == memory.get() &&
         tensor.nbytes() == storage.nbytes() &&
         PlacingAllocator::installed().owner_of(memory.get()) == blocks_.get();
}

Tensor PlacedMemory::empty_like(const Tensor& like) {
  const bool dense = like.is_non_overlapping_and_dense();
  const std::size_t bytes = static_cast<std::size_t>(like.numel()) * like.itemsize();
  void* const data = PlacingAllocator::installed().add(blocks_, blocks_->take(bytes), bytes);
  return at::for_blob(data, like.sizes())
      .strides(dense ? at::OptionalIntArrayRef(like.strides()) : at::OptionalIntArrayRef())
      .context(data, PlacingAllocator::drop)
      .options(like.options().requires_grad(false))
      .make_tensor();
}

PlacedMemory::Scope::Scope(PlacedMemory* memory) noexcept
    : before_(std::exchange(PlacingAllocator::current, memory)) {}
PlacedMemory::Scope::~Scope() { PlacingAllocator::current = before_; }

}  // namespace lockstep::tensor
