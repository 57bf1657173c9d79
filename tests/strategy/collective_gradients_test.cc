// Gradients through all_reduce and all_gather: second derivatives against plain libtorch on the
// values of all replicas, and where backward may be called.
#include <thread>

#include "fixtures.h"
#include "lockstep/testing.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::run_workers;

/// Row r is replica r's input.
Tensor inputs(int replicas) {
  return torch::linspace(1, 2, 3 * replicas, torch::kDouble).view({replicas, 3});
}
/// What replica r's loss is multiplied by.
double scale_of(int replica) { return 1.0 + 2 * replica; }

Tensor gradient_of(const Tensor& loss, const Tensor& x) {
  return torch::autograd::grad({loss}, {x}, {}, /*retain_graph=*/true, /*create_graph=*/true)[0];
}

/// loss(x, scale) of a replica, given how it combines its x with those of the others. The penalty
/// is the squared norm of the gradient.
using Combined = std::function<Tensor(const Tensor&)>;
Tensor loss_of(const Tensor& combined, double scale) { return (combined.pow(3) * scale).sum(); }

/// The gradient of all replicas' penalties; `combine` sees the x of all.
Tensor expected_of(const Tensor& all, const Combined& combine) {
  const Tensor x = all.clone().requires_grad_();
  Tensor loss = torch::zeros({}, torch::kDouble);
  for (int r = 0; r < x.size(0); ++r) loss = loss + loss_of(combine(x), scale_of(r));
  return torch::autograd::grad({gradient_of(loss, x).pow(2).sum()}, {x})[0];
}

/// On every layout of 1, 2 and 4 replicas.
void expect_second_derivatives(const std::function<Tensor(ReplicaContext&, const Tensor&)>& own,
                               const Combined& of_all) {
  const auto check = [&](Strategy& strategy) {
    const Tensor all = inputs(strategy.num_replicas_in_sync());
    const Tensor expected = expected_of(all, of_all);
    strategy.run([&](ReplicaContext& replica) {
      const int id = replica.replica_id_in_sync_group();
      const Tensor x = all[id].clone().requires_grad_();
      const Tensor loss = loss_of(own(replica, x), scale_of(id));
      gradient_of(loss, x).pow(2).sum().backward();
      EXPECT_TRUE(torch::allclose(x.grad(), expected[id], 1e-12, 0)) << x.grad() << "\ninstead of\n"
                                                                     << expected[id];
      EXPECT_GT(expected[id].abs().min().item<double>(), 1);
    });
  };
  for (const int replicas : {1, 2, 4}) {
    MirroredStrategy mirrored(cpus(replicas));
    check(mirrored);
  }
  run_workers({.workers = 2}, check);
  run_workers({.workers = 2, .replicas = 2}, check);
}

TEST(CollectiveGradients, SecondDerivativesThroughASum) {
  expect_second_derivatives(
      [](ReplicaContext& replica, const Tensor& x) {
        return Tensor(replica.all_reduce(ReduceOp::sum, x.pow(2)));
      },
      [](const Tensor& all) { return all.pow(2).sum(0); });
}

TEST(CollectiveGradients, SecondDerivativesThroughAMean) {
  expect_second_derivatives(
      [](ReplicaContext& replica, const Tensor& x) {
        return Tensor(replica.all_reduce(ReduceOp::mean, x.pow(2)));
      },
      [](const Tensor& all) { return all.pow(2).mean(0); });
}

TEST(CollectiveGradients, SecondDerivativesThroughAGather) {
  expect_second_derivatives(
      [](ReplicaContext& replica, const Tensor& x) {
        const Tensor rows = replica.all_gather(x.pow(2).unsqueeze(0));
        return rows * rows.sum(0);
      },
      [](const Tensor& all) { return all.pow(2) * all.pow(2).sum(0); });
}

// f(x) = (sum of x)^4 over two replicas at 1: f''' of the sum of both losses is 2 * 24 * 2.
TEST(CollectiveGradients, ThirdDerivatives) {
  MirroredStrategy strategy(cpus(2));
  const auto third = strategy.run([](ReplicaContext& replica) {
    const Tensor x = torch::ones({}, torch::dtype(torch::kDouble).requires_grad(true));
    const Tensor first = gradient_of(replica.all_reduce(ReduceOp::sum, x).pow(4), x);
    const Tensor second = gradient_of(first, x);
    return gradient_of(second, x).detach();
  });
  // Each derivative is that of the sum over both replicas: 2 * 4 * 2^3, 2 * 2 * 12 * 2^2, ...
  EXPECT_THAT(numbers(third), ElementsAre(8 * 24 * 2, 8 * 24 * 2));
}

// --- Where backward may be called. ------------------------------------------------------------

/// What a replica hands out of its step function: an input, and a sum over replicas that knows it.
struct Recorded {
  Tensor x, y;
  static auto lockstep_members() { return std::tuple(&Recorded::x, &Recorded::y); }
};

Recorded record(ReplicaContext& replica) {
  const Tensor x = torch::ones({1}, torch::requires_grad());
  return {x, replica.all_reduce(ReduceOp::sum, x)};
}

void expect_refused(const Recorded& recorded, const char* where) {
  EXPECT_THAT(wrong_context([&] { recorded.y.backward({}, /*retain_graph=*/true); }),
              AllOf(HasSubstr("backward through all_reduce"), HasSubstr(where),
                    HasSubstr("Call backward inside the step function")));
  EXPECT_FALSE(recorded.x.grad().defined());
}

TEST(CollectiveGradients, BackwardOutsideOfTheStepIsRefused) {
  const auto check = [](Strategy& strategy) {
    const auto recorded = strategy.run(record);
    expect_refused(recorded[0], "outside of its step function, or on another thread");
    const auto scope = strategy.scope();
    expect_refused(recorded[0], "in cross-replica context");
  };
  MirroredStrategy mirrored(cpus(2));
  check(mirrored);
  run_workers({.workers = 2}, check);
}

TEST(CollectiveGradients, BackwardOnAnotherThreadIsRefused) {
  const auto check = [](Strategy& strategy) {
    strategy.run([](ReplicaContext& replica) {
      const Recorded recorded = record(replica);
      std::thread([&] { expect_refused(recorded, "on another thread"); }).join();
      // The replicas are still together.
      recorded.y.backward();
      EXPECT_EQ(number(recorded.x.grad()), replica.num_replicas_in_sync());
    });
  };
  MirroredStrategy mirrored(cpus(2));
  check(mirrored);
  run_workers({.workers = 2}, check);
}

TEST(CollectiveGradients, BackwardByAnotherReplicaIsRefused) {
  MirroredStrategy strategy(cpus(2));
  const auto recorded = strategy.run(record);
  strategy.run([&](ReplicaContext&) {
    expect_refused(recorded[1 - replica_id()],
                   replica_id() == 0 ? "in a step function of replica 0 of MirroredStrategy"
                                     : "in a step function of replica 1 of MirroredStrategy");
  });
  MirroredStrategy other(cpus(2));
  other.run([&](ReplicaContext&) {
    expect_refused(recorded[replica_id()], "in a step function of replica");
  });
}

TEST(CollectiveGradients, BackwardInALaterStepOfTheReplicaIsSummed) {
  MirroredStrategy strategy(cpus(2));
  const auto recorded = strategy.run(record);
  strategy.run([&](ReplicaContext&) { recorded[replica_id()].y.backward(); });
  EXPECT_EQ(number(recorded[0].x.grad()), 2);
  EXPECT_EQ(number(recorded[1].x.grad()), 2);
}

TEST(CollectiveGradients, BackwardOfOneReplicaIsWelcomeAnywhere) {
  MirroredStrategy strategy(cpus(1));
  const auto recorded = strategy.run(record);
  std::thread([&] { recorded[0].y.backward(); }).join();
  EXPECT_EQ(number(recorded[0].x.grad()), 1);
}

TEST(CollectiveGradients, BackwardOfSomeReplicasOnlyIsATable) {
  MirroredStrategy strategy(cpus(2));
  EXPECT_THAT(wrong_context([&] {
                strategy.run([](ReplicaContext& replica) {
                  const Recorded recorded = record(replica);
                  if (replica_id() == 0) recorded.y.backward();
                });
              }),
              AllOf(HasSubstr("different numbers of merge calls"),
                    HasSubstr("collective_gradients_test.cc")));
}

// The context of a strategy's only replica belongs to its step function's thread, too.
TEST(CollectiveGradients, AllReduceOfAnotherThreadsContextIsRefused) {
  MirroredStrategy strategy(cpus(1));
  strategy.run([](ReplicaContext& replica) {
    std::thread([&] {
      EXPECT_THAT(wrong_context([&] { replica.all_reduce(ReduceOp::sum, torch::ones({})); }),
                  HasSubstr("Need to be inside run()"));
    }).join();
  });
}

}  // namespace
}  // namespace lockstep
