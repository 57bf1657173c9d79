#include "tensor/randomness.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <fmt/format.h>
#include <torch/library.h>

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "base/log.h"
#include "lockstep/error.h"
#include "tensor/default_generator.h"

namespace lockstep::tensor {
namespace {

// The topmost key that no part of libtorch uses. "Testing" is its history: it was made to try out
// modes that are switched on per thread, which is what a scope is.
constexpr c10::DispatchKey kKey = c10::DispatchKey::TESTING_ONLY_GenericMode;

// The kernel of an operator with a `Generator?` argument: fills it in and goes on below the key.
class FillGenerator final : public c10::OperatorKernel {
 public:
  FillGenerator(std::size_t argument, std::size_t arguments)
      : argument_(argument), arguments_(arguments) {}

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                  torch::jit::Stack* stack) const {
    const std::size_t first = stack->size() - arguments_;
    c10::IValue& generator = (*stack)[first + argument_];
    const at::Generator* const own = thread_generator();
    if (own != nullptr && is_process_wide(generator) && on_cpu(*stack, first)) generator = *own;
    op.redispatchBoxed(keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, kKey), stack);
  }

 private:
  /// None, or libtorch's default generator given by hand.
  static bool is_process_wide(const c10::IValue& generator) {
    return generator.isNone() || is_default_generator(generator.toGenerator());
  }

  static bool on_cpu(const torch::jit::Stack& stack, std::size_t first) {
    for (std::size_t i = first; i < stack.size(); ++i) {
      const c10::IValue& value = stack[i];
      if (value.isTensor() && value.toTensor().defined() && !value.toTensor().is_cpu())
        return false;
      if (value.isDevice() && !value.toDevice().is_cpu()) return false;
    }
    return true;
  }

  std::size_t argument_;
  std::size_t arguments_;
};

// The place of an operator's `Generator?` argument, if it has one.
std::optional<std::size_t> generator_argument(const c10::FunctionSchema& schema) {
  for (std::size_t i = 0; i < schema.arguments().size(); ++i) {
    const auto optional = schema.arguments()[i].type()->cast<c10::OptionalType>();
    if (optional && optional->getElementType()->kind() == c10::TypeKind::GeneratorType) return i;
  }
  return std::nullopt;
}

// One library per namespace of operators; undone when the program ends, before libtorch's own.
class Registrations {
 public:
  Registrations() {
    library("_").fallback(torch::CppFunction::makeFallthrough());
    auto& dispatcher = c10::Dispatcher::singleton();
    for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
      const auto op = dispatcher.findSchema(name);
      if (!op) continue;
      const auto argument = generator_argument(op->schema());
      if (!argument) continue;
      const std::string full = c10::toString(name);
      library(full.substr(0, full.find("::")))
          .impl(full.c_str(),
                torch::CppFunction::makeFromBoxedFunctor(
                    std::make_unique<FillGenerator>(*argument, op->schema().arguments().size())));
    }
  }

 private:
  torch::Library& library(const std::string& name) {
    auto& slot = libraries_[name];
    if (!slot) {
      slot = std::make_unique<torch::Library>(torch::Library::IMPL, name, kKey, __FILE__, __LINE__);
    }
    return *slot;
  }

  std::map<std::string, std::unique_ptr<torch::Library>> libraries_;
};

void ensure_registered() { static const Registrations registrations; }

// Dispatch tables must not change under threads that dispatch, so all this happens at load. Should
// it fail then, the first generator tries again and throws where somebody can catch it.
const bool kAtLoad = [] {
  try {
    ensure_registered();
    replace_default_generator();
    return true;
  } catch (...) {  // NOLINT(bugprone-empty-catch): see above
    return false;
  }
}();

std::uint64_t splitmix64(std::uint64_t x) noexcept {
  x += 0x9E3779B97F4A7C15U;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9U;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBU;
  return x ^ (x >> 31);
}

}  // namespace

std::uint64_t mixed_seed(std::uint64_t seed, std::int64_t number) noexcept {
  return splitmix64(splitmix64(seed) + static_cast<std::uint64_t>(number));
}

ReplicaGenerator::ReplicaGenerator(std::uint64_t seed, int replica)
    : replica_(replica), generator_(at::detail::createCPUGenerator(mixed_seed(seed, replica))) {
  if (!kAtLoad) ensure_registered();
  static const bool told = [] {
    if (!replace_default_generator()) {
      log_warning(
          "libtorch's default random generator was in use before lockstep was loaded: in step "
          "functions torch::manual_seed() and the default generator's set_state() act on the whole "
          "process; use Strategy::manual_seed() and set_generator_state()");
    }
    return true;
  }();
  static_cast<void>(told);
}

void ReplicaGenerator::reseed(std::uint64_t seed) {
  const std::lock_guard lock(generator_.mutex());
  generator_.set_current_seed(mixed_seed(seed, replica_));
}

Tensor ReplicaGenerator::state() const { return generator_.get_state(); }

void ReplicaGenerator::set_state(const Tensor& state) { set_generator_state(generator_, state); }

void set_generator_state(at::Generator generator, const Tensor& state) {
  const std::lock_guard lock(generator.mutex());
  const std::size_t bytes = generator.get_state().nbytes();
  if (!state.defined() || !state.device().is_cpu() || state.scalar_type() != at::kByte ||
      state.nbytes() != bytes) {
    throw InvalidUsage(fmt::format(
        "this is not the state of a random generator: wanted {} bytes as get_state() gives them",
        bytes));
  }
  try {
    generator.set_state(state.contiguous());
  } catch (const c10::Error& error) {
    throw InvalidUsage(fmt::format("this is not the state of a random generator: {}",
                                   error.what_without_backtrace()));
  }
}

ReplicaGenerator::Pause::Pause() : outer_(exchange_thread_generator(nullptr)) {}

ReplicaGenerator::Pause::~Pause() { exchange_thread_generator(outer_); }

ReplicaGenerator::Scope::Scope(ReplicaGenerator& generator)
    : outer_(exchange_thread_generator(&generator.generator_)), key_(kKey) {}

ReplicaGenerator::Scope::~Scope() { exchange_thread_generator(outer_); }

}  // namespace lockstep::tensor
