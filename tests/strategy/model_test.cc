// Models: one copy of a module for each replica, equal everywhere.
#include "lockstep/model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "lockstep/lockstep.h"
#include "tests/strategy/fixtures.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

// A parameter under two names, and a layer with buffers.
struct TiedImpl : torch::nn::Module {
  TiedImpl() {
    register_module("norm", norm);
    shared = register_parameter("shared", torch::rand({4, 4}));
    register_parameter("again", shared);
  }
  torch::nn::BatchNorm1d norm{4};
  Tensor shared;
};
TORCH_MODULE(Tied);

struct EverLarger : torch::nn::Module {
  explicit EverLarger(int* size) { register_parameter("w", torch::zeros({++*size})); }
};

struct EverWider : torch::nn::Module {
  explicit EverWider(int* made) {
    register_parameter("w", torch::zeros({2}, ++*made == 1 ? torch::kFloat : torch::kDouble));
  }
};

/// Writes into the copy that was made before it.
struct Meddler : torch::nn::Module {
  explicit Meddler(std::vector<Tensor>* made) {
    const auto count = static_cast<double>(made->size());
    if (!made->empty()) made->back().fill_(count);
    made->push_back(register_buffer("count", torch::zeros({2})));
  }
};

class ModelTest : public ::testing::Test {
 protected:
  MirroredStrategy strategy{{.devices = {"CPU:0", "CPU:1", "CPU:2"}}};
};

TEST_F(ModelTest, CopiesAreEqualAndTheirOwn) {
  auto net = strategy.create<torch::nn::Linear>(3, 2);
  ASSERT_EQ(net.size(), 3);
  for (int i = 1; i < 3; ++i) {
    EXPECT_TRUE(torch::equal(net[0]->weight, net[i]->weight));
    EXPECT_TRUE(torch::equal(net[0]->bias, net[i]->bias));
    EXPECT_NE(net[0]->weight.data_ptr(), net[i]->weight.data_ptr());
  }
  EXPECT_THROW(static_cast<void>(net[3]), InvalidUsage);
}

TEST_F(ModelTest, EachReplicaSeesItsOwnCopy) {
  auto net = strategy.create<torch::nn::Linear>(3, 2);
  auto addresses = strategy.run([](torch::nn::Linear& own) { return own->weight.data_ptr(); }, net);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(addresses[i], net[i]->weight.data_ptr());
}

TEST_F(ModelTest, TheDefaultGeneratorIsAsAfterOneConstruction) {
  torch::manual_seed(5);
  torch::nn::Linear alone(3, 2);
  const Tensor after_one = torch::rand({2});
  torch::manual_seed(5);
  auto net = strategy.create<torch::nn::Linear>(3, 2);
  EXPECT_TRUE(torch::equal(net[2]->weight, alone->weight));
  EXPECT_TRUE(torch::equal(torch::rand({2}), after_one));
}

TEST_F(ModelTest, VariablesAreTheParametersAndATiedOneIsOne) {
  auto net = strategy.create<Tied>();
  EXPECT_TRUE(torch::equal(net[0]->norm->running_var, net[1]->norm->running_var));
  std::vector<std::string> names;
  for (const Variable& v : net.variables()) names.push_back(v.name());
  EXPECT_THAT(names, ::testing::UnorderedElementsAre("shared", "norm.weight", "norm.bias"));
  for (const Variable& v : net.variables()) {
    strategy.update(v, [](Component& copy) { copy.assign(7); });
  }
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(torch::equal(net[i]->shared, torch::full({4, 4}, 7.0F)));
  }
}

TEST_F(ModelTest, AConstructorThatBuildsSomethingElseIsRefused) {
  int size = 0;
  try {
    strategy.create<EverLarger>(&size);
    FAIL();
  } catch (const InvalidUsage& e) {
    EXPECT_THAT(e.what(), HasSubstr("'w' of shape [1]"));
  }
}

TEST_F(ModelTest, AnotherElementTypeIsRefused) {
  int made = 0;
  EXPECT_THAT(wrong_value([&] { strategy.create<EverWider>(&made); }),
              HasSubstr("replica 1's module has no 'w' of shape [2] and type Float"));
}

TEST_F(ModelTest, CopiesThatDoNotKeepTheirValuesAreNamed) {
  // The second one takes over what the first has by then; the third changes it.
  std::vector<Tensor> made;
  EXPECT_THAT(error_of<Mismatch>(Code::data_loss, [&] { strategy.create<Meddler>(&made); }),
              HasSubstr("replica 1 (worker 0) differ from replica 0's"));
}

TEST_F(ModelTest, IsMadeAcrossReplicas) {
  EXPECT_THROW(strategy.run([&](ReplicaContext&) { strategy.create<torch::nn::Linear>(3, 2); }),
               InvalidUsage);
}

TEST(Model, CopiesThatShareATensorAreRefused) {
  MirroredStrategy strategy(cpus(2));
  const auto options = torch::nn::EmbeddingOptions(3, 2)._weight(torch::zeros({3, 2}));
  EXPECT_THAT(wrong_value([&] { strategy.create<torch::nn::Embedding>(options); }),
              ::testing::HasSubstr("'weight' is the same tensor as replica 0's"));
}

}  // namespace
}  // namespace lockstep
