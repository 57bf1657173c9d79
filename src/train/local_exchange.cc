// Gradients of replicas that are threads of one process. Each sum is written over the first
// replica's gradient, unless somebody else has that, in one pass over memory by all lanes, and
// every replica takes the step with that one tensor. Cross-device ops that the user has given to
// the strategy form the sums themselves, where they like.
// clang-format off
#include "lockstep/tensor.h"  // before libtorch's own
// clang-format on
#include <ATen/ops/zeros_like.h>

#include <algorithm>

#include "strategy/cross_device/reduce_on_lanes.h"
#include "tensor/reduce.h"
#include "train/gradient_exchange.h"

namespace lockstep::train {

namespace {

class LocalExchange : public GradientExchange {
 public:
  LocalExchange(detail::StrategyCore& core, const Parameters& parameters)
      : core_(core), parameters_(parameters) {
    if (core_.placed_memory() == nullptr) return;
    for (int p = 0; p < parameters_.count(); ++p) {
      const Tensor& parameter = parameters_.on(0, p);
      if (!parameter.requires_grad() || parameter.nbytes() < kKeptBytes) continue;
      kept_.insert(kept_.end(), static_cast<std::size_t>(core_.replicas()), parameter.nbytes());
    }
    for (const std::size_t bytes : kept_) core_.placed_memory()->expect(bytes);
  }
  ~LocalExchange() override {
    for (const std::size_t bytes : kept_) core_.placed_memory()->forget(bytes);
  }
  LocalExchange(const LocalExchange&) = delete;
  LocalExchange& operator=(const LocalExchange&) = delete;

  void arrived(int, int) override {}
  void discard() override {}

  bool finish(const Gathered& gathered) override {
    sums_.clear();  // a step that threw has left its own
    if (core_.has_users_ops()) {
      reduce_by_ops(gathered);
    } else if (core_.replicas() > 1) {
      reduce_in_place(gathered);
    }
    return std::find(gathered.changed.begin(), gathered.changed.end(), true) !=
           gathered.changed.end();
  }

  void bind(int replica) override {
    if (sums_.empty()) return;  // one replica: its gradients are the sums
    const auto& own = sums_[sums_.size() == 1 ? 0 : static_cast<std::size_t>(replica)];
    for (int p = 0; p < parameters_.count(); ++p) {
      parameters_.on(replica, p).mutable_grad() = own[static_cast<std::size_t>(p)];
    }
  }

  void release() override { sums_.clear(); }

  [[nodiscard]] std::string explain() const override {
    if (core_.has_users_ops()) {
      return "gradients: added up by the cross-device ops given to the strategy\n";
    }
    return core_.replicas() == 1 ? "gradients: one replica, nothing to add up\n"
                                 : "gradients: replicas are threads of this process; each sum is "
                                   "formed where the first replica's gradient lies\n";
  }

 private:
  /// From here on glibc has new memory each time for a thread other than the first.
  static constexpr std::size_t kKeptBytes = std::size_t{32} << 20;

  void reduce_in_place(const Gathered& gathered) {
    std::vector<Tensor>& sums = sums_.emplace_back(gathered.used.size());
    std::vector<tensor::ReduceJob> jobs;
    for (int p = 0; p < parameters_.count(); ++p) {
      if (!gathered.used[static_cast<std::size_t>(p)]) continue;
      const bool in_place = first_may_become_sum(p);  // before others have it: us
      std::vector<Tensor> each = gradients_of(p);
      Tensor& sum = sums[static_cast<std::size_t>(p)];
      if (tensor::any_sparse(each)) {
        sum = tensor::reduce_sparse(tensor::Combine::sum, each);
        continue;
      }
      sum = in_place ? each.front()
                     : core_.result_memory().empty_like(each.front(), each.front().scalar_type());
      jobs.push_back({std::move(each), {sum}, tensor::Combine::sum});
    }
    detail::reduce_on_lanes(core_, jobs);
  }

  void reduce_by_ops(const Gathered& gathered) {
    const Destinations everywhere(core_.options().worker_devices);
    std::vector<int> numbers;
    std::vector<ReducePair> pairs;
    for (int p = 0; p < parameters_.count(); ++p) {
      if (!gathered.used[static_cast<std::size_t>(p)]) continue;
      numbers.push_back(p);
      pairs.push_back({PerReplica<Tensor>(gradients_of(p), core_.devices()), everywhere});
    }
    const std::vector<Mirrored<Tensor>> results = core_.ops().batch_reduce(ReduceOp::sum, pairs);
    for (int r = 0; r < core_.replicas(); ++r) {
      std::vector<Tensor>& own = sums_.emplace_back(gathered.used.size());
      for (std::size_t i = 0; i < numbers.size(); ++i) {
        const Tensor& sum = results[i][r];
        own[static_cast<std::size_t>(numbers[i])] = sum.is_sparse() ? sum.coalesce() : sum;
      }
    }
  }

  /// One a replica. Where there is none it is zero, and of no rows if another one is sparse: a
  /// whole table of zeros would make the sum dense.
  [[nodiscard]] std::vector<Tensor> gradients_of(int parameter) const {
    std::vector<Tensor> each;
    Tensor sparse;
    for (int r = 0; r < core_.replicas(); ++r) {
      each.push_back(parameters_.on(r, parameter).grad());
      if (each.back().defined() && each.back().is_sparse()) sparse = each.back();
    }
    for (Tensor& gradient : each) {
      if (gradient.defined()) continue;
      const Tensor& first = parameters_.on(0, parameter);
      gradient = sparse.defined() ? no_rows_of(first, sparse.sparse_dim())
                                  : at::zeros_like(first.detach());
    }
    return each;
  }

  [[nodiscard]] bool first_may_become_sum(int parameter) const {
    const Tensor& first = parameters_.on(0, parameter).grad();
    return !first.defined() || (!first.is_sparse() && may_become_sum(first));
  }

  detail::StrategyCore& core_;
  const Parameters& parameters_;
  std::vector<std::size_t> kept_;  // bytes of each gradient of each replica whose block is kept
  std::vector<std::vector<Tensor>> sums_;  // [replica, or one for all][parameter]
};

}  // namespace

std::unique_ptr<GradientExchange> local_exchange(detail::StrategyCore& core,
                                                 const Parameters& parameters) {
  return std::make_unique<LocalExchange>(core, parameters);
}

}  // namespace lockstep::train
