// What tests of optimizers share.
#pragma once

#include <fmt/format.h>

#include <atomic>

#include "lockstep/optimizer.h"
#include "lockstep/testing.h"
#include "tests/strategy/fixtures.h"

namespace lockstep {

inline Variable trainable(const char* name, const Tensor& initial) {
  VariableOptions options;
  options.trainable = true;
  return variable(name, initial, options);
}

inline torch::optim::SGDOptions rate(double value) { return torch::optim::SGDOptions(value); }

struct TwoLayersImpl : torch::nn::Module {
  TwoLayersImpl() {
    register_module("a", a);
    register_module("b", b);
    const torch::NoGradGuard not_recorded;
    const double most = 0.1;
    for (Tensor& p : parameters()) p.copy_(torch::linspace(-most, most, p.numel()).view(p.sizes()));
  }
  Tensor forward(const Tensor& x) { return b(torch::tanh(a(x))); }
  torch::nn::Linear a{4, 3};
  torch::nn::Linear b{3, 2};
};
TORCH_MODULE(TwoLayers);

inline Tensor rows_of(int replica) {
  return torch::linspace(-1, 1, 8).view({2, 4}) * (replica + 1);
}

/// The values of the first copy of each.
inline std::vector<Tensor> values_of(const std::vector<Variable>& variables) {
  std::vector<Tensor> result;
  for (const Variable& v : variables) result.push_back(v[0].detach().clone());
  return result;
}

inline void expect_equal(const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(a[i].equal(b[i])) << i << a[i] << b[i];
}

/// Runs the workers; every one of them must throw an E, whose message is given to check().
template <class E, class Body, class Check>
void expect_every_worker_throws(const testing::TestCluster& cluster, Body&& body, Check&& check) {
  std::atomic<int> seen = 0;
  testing::run_workers(cluster, [&](MultiWorkerMirroredStrategy& strategy) {
    try {
      body(strategy);
      ADD_FAILURE() << "worker " << strategy.worker_index() << " did not throw";
    } catch (const E& error) {
      ++seen;
      check(error);
    } catch (const std::exception& error) {
      ADD_FAILURE() << "worker " << strategy.worker_index() << " threw " << error.what();
    }
  });
  EXPECT_EQ(seen, cluster.workers);
}

}  // namespace lockstep
