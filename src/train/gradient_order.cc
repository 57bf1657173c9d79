#include "train/gradient_order.h"

#include <algorithm>
#include <cstdint>
#include <utility>

namespace lockstep::train {

namespace {

/// What a worker saw of a parameter's gradient in the first step.
enum class Kind : std::int64_t { unused, dense, sparse };

Kind kind_on_this_worker(const Parameters& parameters, int parameter) {
  Kind kind = Kind::unused;
  for (const std::vector<Tensor>& copy : parameters.tensors) {
    const Tensor& gradient = copy[static_cast<std::size_t>(parameter)].grad();
    if (!gradient.defined()) continue;
    if (!gradient.is_sparse()) return Kind::dense;
    kind = Kind::sparse;
  }
  return kind;
}

/// What a worker tells the others: first all parameters in its order, then the kind of each.
std::vector<std::int64_t> own_view(const Parameters& parameters, const std::vector<int>& arrived) {
  std::vector<std::int64_t> view;
  std::vector<char> listed(parameters.variables.size(), 0);
  const auto list = [&](int p) {
    if (std::exchange(listed[static_cast<std::size_t>(p)], 1) == 0) view.push_back(p);
  };
  for (const int p : arrived) list(p);
  for (int p = parameters.count() - 1; p >= 0; --p) list(p);
  for (int p = 0; p < parameters.count(); ++p) {
    view.push_back(static_cast<std::int64_t>(kind_on_this_worker(parameters, p)));
  }
  return view;
}

/// `views` has the own_view() of each worker.
bool is_sparse_on_all(const std::vector<std::int64_t>& views, std::size_t count, int parameter) {
  bool sparse = false;
  for (std::size_t begin = 0; begin < views.size(); begin += 2 * count) {
    const auto kind = static_cast<Kind>(views[begin + count + static_cast<std::size_t>(parameter)]);
    if (kind == Kind::dense) return false;
    sparse = sparse || kind == Kind::sparse;
  }
  return sparse;
}

}  // namespace

GradientOrder agree_on_order(detail::Workers& workers, const Parameters& parameters,
                             const std::vector<int>& arrived) {
  const std::vector<std::int64_t> views =
      workers.gather(own_view(parameters, arrived), "order of gradients");
  const std::size_t count = parameters.variables.size();
  GradientOrder order;
  for (std::size_t i = 0; i < count; ++i) {
    const auto p = static_cast<int>(views[i]);  // the chief is the first worker
    if (is_sparse_on_all(views, count, p)) {
      order.sparse.push_back(p);
    } else if (parameters.on(0, p).requires_grad()) {
      order.dense.push_back(p);
    }
  }
  std::sort(order.sparse.begin(), order.sparse.end());
  return order;
}

}  // namespace lockstep::train
