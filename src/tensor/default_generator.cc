#include "tensor/default_generator.h"

#include <ATen/CPUGeneratorImpl.h>

#include <cstdint>
#include <mutex>
#include <utility>

namespace lockstep::tensor {
namespace {

thread_local const at::Generator* current_generator = nullptr;

c10::GeneratorImpl* of_this_thread() noexcept {
  return current_generator == nullptr ? nullptr : current_generator->unsafeGetGeneratorImpl();
}

/// Everything that decides the next numbers.
void copy_numbers(at::CPUGeneratorImpl& from, at::CPUGeneratorImpl& to) {
  to.set_engine(from.engine());
  to.set_next_float_normal_sample(from.next_float_normal_sample());
  to.set_next_double_normal_sample(from.next_double_normal_sample());
}

class ThreadAwareGenerator final : public at::CPUGeneratorImpl {
 public:
  explicit ThreadAwareGenerator(at::CPUGeneratorImpl& original) { copy_numbers(original, *this); }

  void set_current_seed(std::uint64_t seed) override {
    c10::GeneratorImpl* const own = of_this_thread();
    if (own == nullptr) return CPUGeneratorImpl::set_current_seed(seed);
    // The caller holds this object's mutex, as libtorch asks of it.
    const std::lock_guard lock(own->mutex_);
    own->set_current_seed(seed);
  }

  std::uint64_t current_seed() const override {
    const c10::GeneratorImpl* const own = of_this_thread();
    return own == nullptr ? CPUGeneratorImpl::current_seed() : own->current_seed();
  }

  std::uint64_t seed() override {
    c10::GeneratorImpl* const own = of_this_thread();
    if (own == nullptr) return CPUGeneratorImpl::seed();
    const std::lock_guard lock(own->mutex_);
    return own->seed();
  }

  void set_state(const c10::TensorImpl& new_state) override {
    c10::GeneratorImpl* const own = of_this_thread();
    if (own == nullptr) return CPUGeneratorImpl::set_state(new_state);
    const std::lock_guard lock(own->mutex_);
    own->set_state(new_state);
  }

  c10::intrusive_ptr<c10::TensorImpl> get_state() const override {
    const c10::GeneratorImpl* const own = of_this_thread();
    return own == nullptr ? CPUGeneratorImpl::get_state() : own->get_state();
  }

 private:
  /// A clone is a plain generator.
  at::CPUGeneratorImpl* clone_impl() const override {
    // The getters are not const in libtorch, but change nothing.
    const at::CPUGeneratorImpl* source = this;
    if (const c10::GeneratorImpl* own = of_this_thread()) {
      source = static_cast<const at::CPUGeneratorImpl*>(own);
    }
    auto clone = c10::make_intrusive<at::CPUGeneratorImpl>();
    copy_numbers(const_cast<at::CPUGeneratorImpl&>(*source), *clone);
    return clone.release();
  }
};

/// The object behind at::detail::getDefaultCPUGenerator(), which is not const itself.
at::Generator& default_generator() {
  return const_cast<at::Generator&>(at::detail::getDefaultCPUGenerator());
}

/// Puts libtorch's own back when the program ends or lockstep is unloaded.
class Replacement {
 public:
  Replacement() : original_(default_generator()) {
    constexpr std::size_t kOurs = 2;  // the default generator's reference, and original_
    if (original_.getIntrusivePtr().use_count() > kOurs) return;
    ours_ = at::make_generator<ThreadAwareGenerator>(*original_.get<at::CPUGeneratorImpl>());
    default_generator() = ours_;
  }
  ~Replacement() {
    if (!replaced()) return;
    copy_numbers(*ours_.get<at::CPUGeneratorImpl>(), *original_.get<at::CPUGeneratorImpl>());
    default_generator() = original_;
  }
  Replacement(const Replacement&) = delete;
  Replacement& operator=(const Replacement&) = delete;

  [[nodiscard]] bool replaced() const noexcept { return ours_.defined(); }

 private:
  at::Generator original_;
  at::Generator ours_;
};

}  // namespace

const at::Generator* thread_generator() noexcept { return current_generator; }

const at::Generator* exchange_thread_generator(const at::Generator* generator) noexcept {
  return std::exchange(current_generator, generator);
}

bool is_default_generator(const at::Generator& generator) noexcept {
  return generator.unsafeGetGeneratorImpl() ==
         at::detail::getDefaultCPUGenerator().unsafeGetGeneratorImpl();
}

bool replace_default_generator() {
  static const Replacement replacement;
  return replacement.replaced();
}

}  // namespace lockstep::tensor
