// VariableCreatorScope: functions that change or replace a variable as it is created.
#include <atomic>
#include <mutex>

#include "fixtures.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Scopes, VariableCreatorsStandInBetween) {
  MirroredStrategy strategy(cpus(2));
  auto scope = strategy.scope();
  std::vector<std::string> asked;
  const VariableCreatorScope outer([&](const NextCreator& next, VariableRequest request) {
    asked.push_back("outer:" + request.name);
    request.options.aggregation = Aggregation::sum;
    return next(std::move(request));
  });
  const VariableCreatorScope inner([&](const NextCreator& next, VariableRequest request) {
    asked.push_back("inner:" + request.name);
    request.name += "_renamed";
    return next(std::move(request));
  });
  const Variable v = variable("v", 1.0);
  EXPECT_THAT(asked, ElementsAre("inner:v", "outer:v_renamed"));
  EXPECT_EQ(v.name(), "v_renamed");
  EXPECT_EQ(v.aggregation(), Aggregation::sum);
}

TEST(Scopes, CreatorsOfTheCallerServeItsReplicas) {
  MirroredStrategy strategy(cpus(2));
  std::atomic<int> calls = 0;
  const VariableCreatorScope counting([&](const NextCreator& next, VariableRequest request) {
    ++calls;
    return next(std::move(request));
  });
  const Variable v = strategy.run([] {
    // One of a replica's own does not leak to the caller.
    const VariableCreatorScope own([](const NextCreator& next, VariableRequest request) {
      request.name += "_own";
      return next(std::move(request));
    });
    return variable("v", 1.0);
  });
  EXPECT_EQ(v.name(), "v_own");
  EXPECT_EQ(calls, 1);  // replica 0 creates, for all
  EXPECT_EQ(variable("w", 1.0).name(), "w");
}

// TensorFlow's order: the replica's own creators, then what all replicas share, then the caller's.
TEST(Scopes, CreatorsOfAReplicaAreAskedOnEveryReplica) {
  MirroredStrategy strategy(cpus(3));
  std::mutex mutex;
  std::vector<std::string> asked;
  const auto note = [&](const std::string& who, const VariableRequest& request) {
    const std::lock_guard lock(mutex);
    asked.push_back(who + " " + request.name);
  };
  const VariableCreatorScope callers([&](const NextCreator& next, VariableRequest request) {
    note("caller", request);
    request.name += "_callers";
    return next(std::move(request));
  });
  const Variable v = strategy.run([&] {
    const int id = replica_id();
    const VariableCreatorScope outer([&](const NextCreator& next, VariableRequest request) {
      note("outer" + std::to_string(id), request);
      request.name += "_outer";
      Variable made = next(std::move(request));
      note("made" + std::to_string(id), {made.name(), {}, {}});
      return made;
    });
    const VariableCreatorScope inner([&](const NextCreator& next, VariableRequest request) {
      note("inner" + std::to_string(id), request);
      request.name += "_inner";
      return next(std::move(request));
    });
    return variable("v", 1.0);
  });
  EXPECT_EQ(v.name(), "v_inner_outer_callers");
  EXPECT_THAT(asked, ::testing::UnorderedElementsAre(
                         "inner0 v", "inner1 v", "inner2 v", "outer0 v_inner", "outer1 v_inner",
                         "outer2 v_inner", "caller v_inner_outer", "made0 v_inner_outer_callers",
                         "made1 v_inner_outer_callers", "made2 v_inner_outer_callers"));
}

// A merge function runs on replica 0's thread, but is no part of that replica: the replica's own
// creators have no say in it, the caller's have.
TEST(Scopes, CreatorsOfAReplicaAreNotAskedInItsMergeFunction) {
  MirroredStrategy strategy(cpus(2));
  std::mutex mutex;
  std::vector<std::string> asked;
  const auto creator = [&](const std::string& who) {
    return [&, who](const NextCreator& next, VariableRequest request) {
      {
        const std::lock_guard lock(mutex);
        asked.push_back(who + " " + request.name);
      }
      return next(std::move(request));
    };
  };
  const VariableCreatorScope callers(creator("caller"));
  strategy.run([&](ReplicaContext& replica) {
    const VariableCreatorScope own(creator("replica"));
    replica.merge_call([](Strategy&) {
      const Variable merged = variable("merged", 1.0);
      EXPECT_EQ(merged.size(), 2);
      EXPECT_EQ(merged.name(), "merged");
    });
    EXPECT_EQ(variable("after", 1.0).name(), "after");
  });
  EXPECT_THAT(asked, ::testing::UnorderedElementsAre("caller merged", "replica after",
                                                     "replica after", "caller after"));
}

// So it is in a run inside of a merge function: its replicas begin with the caller's creators.
TEST(Scopes, CreatorsOfAReplicaAreNotAskedInANestedRun) {
  MirroredStrategy strategy(cpus(2));
  std::mutex mutex;
  std::vector<std::string> asked;
  const auto creator = [&](const std::string& who) {
    return [&, who](const NextCreator& next, VariableRequest request) {
      {
        const std::lock_guard lock(mutex);
        asked.push_back(who + " " + request.name);
      }
      return next(std::move(request));
    };
  };
  const VariableCreatorScope callers(creator("caller"));
  strategy.run([&](ReplicaContext& replica) {
    const VariableCreatorScope own(creator("outer"));
    replica.merge_call([&](Strategy& s) {
      const Variable nested = s.run([&] {
        const VariableCreatorScope inside(creator("inner"));
        return variable("nested", 1.0);
      });
      EXPECT_EQ(nested.size(), 2);
    });
    variable("after", 1.0);
  });
  EXPECT_THAT(asked,
              ::testing::UnorderedElementsAre("inner nested", "inner nested", "caller nested",
                                              "outer after", "outer after", "caller after"));
}

// The name that a replica's own creators ask for is the one under which replicas find each other.
TEST(Scopes, ACreatorOfAReplicaMayGiveAnotherVariable) {
  MirroredStrategy strategy(cpus(2));
  auto scope = strategy.scope();
  const Variable kept = variable("kept", 4.0);
  const Variable given = strategy.run([&] {
    const VariableCreatorScope own(
        [&](const NextCreator&, const VariableRequest&) { return kept; });
    return variable("v", 1.0);
  });
  EXPECT_TRUE(given.same_as(kept));
  EXPECT_THAT(
      wrong_context([&] {
        strategy.run([&] {
          const VariableCreatorScope own([](const NextCreator& next, VariableRequest request) {
            request.name += replica_id() == 0 ? "_a" : "_b";
            return next(std::move(request));
          });
          return variable("v", 1.0);
        });
      }),
      HasSubstr("v_b"));
}

}  // namespace
}  // namespace lockstep
