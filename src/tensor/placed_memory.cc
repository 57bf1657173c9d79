#include "tensor/placed_memory.h"

#include <ATen/ops/from_blob.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/graph_task.h>

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

  /// False for most allocations, without a lock: they are smaller.
  [[nodiscard]] bool may_expect(std::size_t bytes) const noexcept {
    return bytes >= least_.load(std::memory_order_relaxed);
  }

  /// Null if none of this size is expected, or too many are used already, or none can be had.
  std::shared_ptr<void> take_expected(std::size_t bytes) noexcept {
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
  std::atomic<std::size_t> least_ = kNone;  // size that is expected
  Mutex mutex_;
  std::map<std::size_t, Size> sizes_ GUARDED_BY(mutex_);
  bool closed_ GUARDED_BY(mutex_) = false;
};

namespace {

/// A block that a tensor has.
struct Placed {
  std::shared_ptr<PlacedMemory::Blocks> of;
  std::shared_ptr<void> block;
  std::size_t bytes = 0;
};

/// All such blocks of the process, by address: some of libtorch (oneDNN's side) gives memory back
/// by its address alone.
class Registry {
 public:
  static Registry& of_process() {
    static auto* const registry = new Registry;  // tensors may be dropped until the process ends
    return *registry;
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

  /// Whether it was one of them.
  bool give_back(const void* data) {
    Placed dropped;
    {
      const MutexLock lock(mutex_);
      const auto found = placed_.find(data);
      if (found == placed_.end()) return false;
      dropped = std::move(found->second);
      placed_.erase(found);
    }
    dropped.of->give_back(dropped.bytes, std::move(dropped.block));
    return true;
  }

 private:
  mutable Mutex mutex_;
  std::unordered_map<const void*, Placed> placed_ GUARDED_BY(mutex_);
};

/// Where this thread's backward passes may place what they compute.
thread_local PlacedMemory* current_memory = nullptr;

/// Whether this thread computes a node of a backward pass that is not itself recorded.
bool in_backward() {
  return !c10::GradMode::is_enabled() &&
         torch::autograd::get_current_graph_task_exec_info() != nullptr;
}

}  // namespace

/// libtorch's own allocator, but for what is placed.
class PlacingAllocator final : public c10::Allocator {
 public:
  static void install() {
    static const bool once = [] {
      usual_ = c10::GetCPUAllocator();
      c10::SetCPUAllocator(new PlacingAllocator);  // libtorch's until the process ends
      return true;
    }();
    (void)once;
  }

  [[nodiscard]] c10::DataPtr allocate(std::size_t bytes) const override {
    if (current_memory != nullptr && current_memory->blocks_->may_expect(bytes) && in_backward()) {
      const auto& blocks = current_memory->blocks_;
      if (auto block = blocks->take_expected(bytes)) {
        void* const data = Registry::of_process().add(blocks, std::move(block), bytes);
        return {data, data, drop, c10::kCPU};
      }
    }
    return usual_->allocate(bytes);
  }
  [[nodiscard]] c10::DeleterFnPtr raw_deleter() const override {
    return usual_->raw_deleter() != nullptr ? drop : nullptr;
  }

  static void drop(void* data) {
    if (data == nullptr || Registry::of_process().give_back(data)) return;
    usual_->raw_deleter()(data);
  }

 private:
  static c10::Allocator* usual_;  // null: not installed
};

c10::Allocator* PlacingAllocator::usual_ = nullptr;

void PlacedMemory::place_gradients_of_this_process() { PlacingAllocator::install(); }

PlacedMemory::PlacedMemory(Source source) : blocks_(std::make_shared<Blocks>(std::move(source))) {}
PlacedMemory::~PlacedMemory() { close(); }

void PlacedMemory::expect(std::size_t bytes) { blocks_->expect(bytes); }
void PlacedMemory::forget(std::size_t bytes) noexcept { blocks_->forget(bytes); }
void PlacedMemory::close() noexcept { blocks_->close(); }

bool PlacedMemory::holds(const Tensor& tensor) const {
  const c10::Storage& storage = tensor.storage();
  const c10::DataPtr& memory = storage.data_ptr();
  return memory.get_deleter() == &PlacingAllocator::drop && tensor.data_ptr() == memory.get() &&
         tensor.nbytes() == storage.nbytes() &&
         Registry::of_process().owner_of(memory.get()) == blocks_.get();
}

Tensor PlacedMemory::empty_like(const Tensor& like) {
  const bool dense = like.is_non_overlapping_and_dense();
  const std::size_t bytes = static_cast<std::size_t>(like.numel()) * like.itemsize();
  void* const data = Registry::of_process().add(blocks_, blocks_->take(bytes), bytes);
  return at::for_blob(data, like.sizes())
      .strides(dense ? at::OptionalIntArrayRef(like.strides()) : at::OptionalIntArrayRef())
      .context(data, PlacingAllocator::drop)
      .options(like.options().requires_grad(false))
      .make_tensor();
}

PlacedMemory::Scope::Scope(PlacedMemory* memory) noexcept
    : before_(std::exchange(current_memory, memory)) {}
PlacedMemory::Scope::~Scope() { current_memory = before_; }

}  // namespace lockstep::tensor
