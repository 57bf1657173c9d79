#include "train/optimizer_list.h"

// clang-format off
#include "lockstep/tensor.h"  // before libtorch's own
// clang-format on
#include <torch/csrc/autograd/engine.h>

#include "train/optimizer_sharing.h"

namespace lockstep::detail {

int OptimizerList::add(const std::shared_ptr<OptimizerSharing>& optimizer) {
  const MutexLock lock(mutex_);
  std::erase_if(optimizers_, [](const auto& each) { return each.expired(); });
  optimizers_.push_back(optimizer);
  return made_++;
}

std::vector<std::shared_ptr<OptimizerSharing>> OptimizerList::others(const OptimizerSharing& than) {
  const MutexLock lock(mutex_);
  std::vector<std::shared_ptr<OptimizerSharing>> living;
  for (const auto& each : optimizers_) {
    std::shared_ptr<OptimizerSharing> optimizer = each.lock();
    if (optimizer && optimizer.get() != &than) living.push_back(std::move(optimizer));
  }
  return living;
}

std::int64_t OptimizerList::pass_of(int replica) {
  Pass& pass = passes_[static_cast<std::size_t>(replica)];
  if (!pass.running) {
    pass.running = true;
    ++pass.number;
    torch::autograd::Engine::get_default_engine().queue_callback(
        [list = shared_from_this(), &pass] { pass.running = false; });
  }
  return pass.number;
}

void OptimizerList::end_passes() noexcept {
  for (Pass& pass : passes_) pass.running = false;
}

}  // namespace lockstep::detail
