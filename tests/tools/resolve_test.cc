#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>

#include "tests/tools/command.h"

namespace lockstep::tool {
namespace {

using testing::AllOf;
using testing::ContainsRegex;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

/// resolve with these variables in its environment.
Result resolve(const std::map<std::string, std::string>& variables,
               const std::string& arguments = "") {
  for (const auto& [name, value] : variables) ::setenv(name.c_str(), value.c_str(), 1);
  Result result = lockstep_command("resolve " + arguments);
  for (const auto& [name, value] : variables) ::unsetenv(name.c_str());
  return result;
}

std::string config(const std::string& task) {
  return R"({"cluster": {"chief": ["c:1"], "worker": ["w0:1", "w1:1"], "ps": {"1": "p1:1"}},
             "task": )" +
         task + "}";
}

const std::map<std::string, std::string> kTorchrun = {
    {"RANK", "3"}, {"WORLD_SIZE", "4"}, {"MASTER_ADDR", "m"}, {"MASTER_PORT", "29500"}};

TEST(Resolve, Alone) {
  const Result result = resolve({});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(lines_of(result.out),
              ElementsAre("cluster    none, this process is alone", "chief      yes, this process",
                          "leader     none", "workers    1"));
  EXPECT_THAT(resolve({}, "--explain").out, HasSubstr("taken      nothing"));
}

TEST(Resolve, SaysWhatItFoundAndWhere) {
  const Result result = resolve({{"TF_CONFIG", config(R"({"type": "worker", "index": 1})")}});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(
      lines_of(result.out),
      ElementsAre("cluster    chief: 1 task at c:1  (TF_CONFIG, \"cluster\")",
                  "cluster    ps: 1 task at -, p1:1  (TF_CONFIG, \"cluster\")",
                  "cluster    worker: 2 tasks at w0:1, w1:1  (TF_CONFIG, \"cluster\")",
                  "task type  worker  (TF_CONFIG, \"task\", \"type\")",
                  "task id    1  (TF_CONFIG, \"task\", \"index\")",
                  "chief      no, another task  (the cluster has a chief)",
                  "leader     /job:chief/replica:0/task:0  (the cluster has a chief)",
                  "workers    3, this task is number 2  (chief and workers of the cluster)"));
}

TEST(Resolve, TasksOfEveryType) {
  const auto facts = [](const std::string& type) {
    const std::string index = type == "ps" ? "1" : "0";
    const Result result =
        resolve({{"TF_CONFIG", config(R"({"type": ")" + type + R"(", "index": )" + index + "}")}});
    EXPECT_EQ(result.code, 0) << result.err;
    return result.out;
  };
  EXPECT_THAT(facts("chief"), AllOf(HasSubstr("chief      yes"), HasSubstr("is number 0")));
  EXPECT_THAT(facts("worker"), AllOf(HasSubstr("chief      no"), HasSubstr("is number 1")));
  EXPECT_THAT(facts("ps"), HasSubstr("workers    this task is none of them"));
  EXPECT_THAT(facts("evaluator"), AllOf(HasSubstr("chief      yes"), HasSubstr("leader     none"),
                                        HasSubstr("an evaluator works alone")));
}

TEST(Resolve, Launchers) {
  EXPECT_THAT(
      resolve(kTorchrun).out,
      AllOf(HasSubstr("worker: 4 tasks at m:29500, ?, ?, ?  (WORLD_SIZE, MASTER_ADDR, "
                      "MASTER_PORT)"),
            HasSubstr("task id    3  (RANK)"), HasSubstr("worker 0, as the cluster has no chief")));
  EXPECT_THAT(resolve({{"OMPI_COMM_WORLD_RANK", "0"},
                       {"OMPI_COMM_WORLD_SIZE", "2"},
                       {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                       {"PMIX_NAMESPACE", "77"}})
                  .out,
              HasSubstr("meeting    openmpi-77"));
}

TEST(Resolve, ATaskThatIsNotTold) {
  const Result result = resolve({{"TF_CONFIG", R"({"cluster": {"worker": ["a:1", "b:1"]}})"}});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("task type  not told  (a program that joins needs it: "
                                          "TF_CONFIG, \"task\", \"type\")"),
                                HasSubstr("task id    not told"), Not(HasSubstr("leader"))));
}

TEST(Resolve, ExplainsWhatWasIgnored) {
  auto variables = kTorchrun;
  variables["LOCKSTEP_RANK"] = "1";  // half a description
  variables["TF_CONFIG"] = R"({"cluster": {"worker": ["a:1", "b:1"]},
                               "task": {"type": "worker", "index": 1}})";
  const Result result = resolve(variables, "--explain");
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(
      result.out,
      AllOf(HasSubstr("taken      TF_CONFIG: the first in order"),
            HasSubstr("ignored    LOCKSTEP_ADDRESSES gives no rank (LOCKSTEP_ADDRESSES is "),
            HasSubstr("ignored    torchrun says rank 3 of 4\n"), HasSubstr("order      ")));
  EXPECT_THAT(result.err, ContainsRegex("this is rank 1 of 2 by TF_CONFIG; ignored: "
                                        "LOCKSTEP_ADDRESSES .*, torchrun says rank 3 of 4"));
  EXPECT_THAT(resolve(variables).out, Not(HasSubstr("ignored")));
}

TEST(Resolve, WhatIsWrongIsExitCodeOne) {
  const auto wrong = [](const std::map<std::string, std::string>& variables) {
    const Result result = resolve(variables);
    EXPECT_EQ(result.code, 1) << result.out << result.err;
    EXPECT_EQ(result.out, "");
    EXPECT_EQ(lines_of(result.err).size(), 1U) << result.err;
    return result.err;
  };
  EXPECT_THAT(wrong({{"TF_CONFIG", "{'cluster': {}}"}}),
              AllOf(HasSubstr("lockstep: TF_CONFIG, byte 1"), HasSubstr("double quotes")));
  EXPECT_THAT(wrong({{"TF_CONFIG", config(R"({"type": "worker", "index": 7})")}}),
              HasSubstr("lockstep: TF_CONFIG: task_id 7"));
  EXPECT_THAT(wrong({{"LOCKSTEP_RANK", "1"}}), HasSubstr("LOCKSTEP_ADDRESSES is not set"));
  EXPECT_THAT(wrong({{"RANK", "x"}, {"WORLD_SIZE", "2"}}), HasSubstr("RANK, byte 0"));
}

TEST(Resolve, UnderTheLauncher) {
  const Result result =
      lockstep_command("launch -n 2 --no-prefix -- '" LOCKSTEP_COMMAND "' resolve --explain");
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(
      result.out,
      AllOf(HasSubstr("task id    0  (LOCKSTEP_RANK)"), HasSubstr("task id    1  (LOCKSTEP_RANK)"),
            HasSubstr("ignored    TF_CONFIG says the same as LOCKSTEP_ADDRESSES")));
}

}  // namespace
}  // namespace lockstep::tool
