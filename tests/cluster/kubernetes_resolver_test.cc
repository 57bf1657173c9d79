#include "lockstep/kubernetes_resolver.h"

#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>

#include "cluster/placement.h"
#include "tests/cluster/variables.h"

namespace lockstep {
namespace {

using testing::AllOf;
using testing::HasSubstr;

/// A pod as the API writes it, with some of what lockstep does not read.
std::string pod(const std::string& name, const std::string& host,
                const std::string& phase = "Running", const std::string& label = "tensorflow") {
  return R"({"metadata": {"name": ")" + name + R"(", "uid": "7", "labels": {"job-name": ")" +
         label +
         R"("}}, "spec": {"containers": [{"name": "main", "ports": [{"containerPort": 80}]}]},
             "status": {"phase": ")" +
         phase + R"(", "hostIP": ")" + host + R"(", "podIP": "172.16.0.)" +
         host.substr(host.size() - 1) + R"("}})";
}

std::string list_of(const std::vector<std::string>& pods) {
  std::string text = R"({"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": [)";
  for (const std::string& one : pods) text += (text.back() == '[' ? "" : ", ") + one;
  return text + "]}";
}

ClusterSpec cluster_of(const std::string& text, KubernetesOptions options = {}) {
  return KubernetesResolver(PodList::of_text(text), std::move(options)).cluster_spec();
}

const std::string kThree =
    list_of({pod("tensorflow-abc123", "10.1.2.3"), pod("tensorflow-def456", "10.1.2.4"),
             pod("tensorflow-999999", "10.1.2.5")});

TEST(KubernetesResolver, Case104PodsByName) {
  EXPECT_EQ(cluster_of(kThree),
            ClusterSpec({{"worker", {"10.1.2.5:8470", "10.1.2.3:8470", "10.1.2.4:8470"}}}));
}

TEST(KubernetesResolver, Case104AFailedPodIsAnError) {
  for (const char* phase : {"Failed", "Pending", "Succeeded", "Unknown", ""}) {
    EXPECT_THAT(message_of<ConfigError>([&] {
                  cluster_of(list_of({pod("good", "10.1.2.3"), pod("bad", "10.1.2.4", phase)}));
                }),
                AllOf(HasSubstr("pod bad is not Running"), HasSubstr("items[1].status.phase"),
                      HasSubstr(*phase == '\0' ? "missing" : phase)));
  }
}

TEST(KubernetesResolver, TheTaskIsNeverInferred) {
  const KubernetesResolver resolver(PodList::of_text(kThree));
  EXPECT_EQ(resolver.task_type(), std::nullopt);
  EXPECT_EQ(resolver.task_id(), std::nullopt);
  EXPECT_EQ(resolver.rpc_layer(), std::nullopt);
  EXPECT_EQ(resolver.source(), "Kubernetes");
  EXPECT_EQ(resolver.master(), "");
  EXPECT_EQ(resolver.master({.task_type = "worker", .task_id = 0}), "10.1.2.5:8470");
  EXPECT_THAT(message_of<ConfigError>([&] { cluster::placement_of(resolver); }),
              HasSubstr("the task's type"));
}

TEST(KubernetesResolver, TheTaskCanBeSet) {
  KubernetesResolver resolver(PodList::of_text(kThree),
                              {.task = {.task_type = "worker", .task_id = 1, .rpc_layer = "grpc"}});
  EXPECT_EQ(resolver.master(), "grpc://10.1.2.3:8470");
  EXPECT_EQ(cluster::placement_of(resolver).rank, 1);
  resolver.set_task_id(2);
  EXPECT_EQ(cluster::placement_of(resolver).rank, 2);
}

TEST(KubernetesResolver, JobsSelectorsAndPorts) {
  const std::string text =
      list_of({pod("b", "10.0.0.1", "Running", "w1"), pod("a", "10.0.0.2", "Running", "w2"),
               pod("c", "10.0.0.3", "Running", "w1"), pod("p", "10.0.0.4", "Running", "ps"),
               pod("x", "10.0.0.5", "Failed", "other")});
  const ClusterSpec expected{{"worker", {"10.0.0.1:4000", "10.0.0.3:4000", "10.0.0.2:4000"}},
                             {"ps", {"10.0.0.4:4000"}}};
  // Selectors in their order, the pods of each by name; what none selects does not matter.
  EXPECT_EQ(cluster_of(text, {.jobs = {{"worker", {"job-name=w1", "job-name=w2"}},
                                       {"ps", {"job-name notin (w1,w2,other)"}}},
                              .port = 4000}),
            expected);
  EXPECT_EQ(cluster_of(text, {.jobs = {{"ps", {"job-name=none"}}}}), ClusterSpec({{"ps", {}}}));
}

TEST(KubernetesResolver, AddressesOfPods) {
  EXPECT_EQ(cluster_of(kThree, {.address = PodAddress::pod}),
            ClusterSpec({{"worker", {"172.16.0.5:8470", "172.16.0.3:8470", "172.16.0.4:8470"}}}));
  EXPECT_EQ(cluster_of(list_of({pod("a", "fd00::1")})),
            ClusterSpec({{"worker", {"[fd00::1]:8470"}}}));
}

TEST(KubernetesResolver, TwoPodsOfAHostCannotShareAPort) {
  EXPECT_THAT(message_of<ConfigError>([] {
                cluster_of(list_of({pod("a", "10.0.0.1"), pod("b", "10.0.0.1")}));
              }),
              AllOf(HasSubstr("worker 0 (pod a)"), HasSubstr("worker 1 (pod b)"),
                    HasSubstr("10.0.0.1:8470")));
}

TEST(KubernetesResolver, WhatKubectlPrints) {
  EXPECT_EQ(cluster_of(R"({"apiVersion": "v1", "kind": "List", "items": []})"),
            ClusterSpec({{"worker", {}}}));
  // An item without labels, one that nobody has placed yet.
  EXPECT_EQ(cluster_of(R"({"items": [{"metadata": {"name": "a", "labels": null}},
                                     {"metadata": {"name": "b"}, "status": {}}]})"),
            ClusterSpec({{"worker", {}}}));
}

TEST(KubernetesResolver, AFunctionIsAskedEachTime) {
  std::string text = list_of({pod("a", "10.0.0.1")});
  const KubernetesResolver resolver(PodList::from([&text] { return text; }));
  EXPECT_EQ(resolver.cluster_spec().num_tasks("worker"), 1);
  text = kThree;
  EXPECT_EQ(resolver.cluster_spec().num_tasks("worker"), 3);
  const KubernetesResolver throws(
      PodList::from([]() -> std::string { throw std::runtime_error("no answer"); }));
  EXPECT_THROW((void)throws.cluster_spec(), std::runtime_error);
  EXPECT_THROW(PodList::from({}), InvalidUsage);
}

TEST(KubernetesResolver, Files) {
  const std::string path = testing::TempDir() + "lockstep-pods-" + std::to_string(getpid());
  const KubernetesResolver resolver(PodList::in_file(path));
  const auto refused = [&] {
    return message_of<ConfigError>([&] { (void)resolver.cluster_spec(); });
  };
  EXPECT_THAT(refused(), AllOf(HasSubstr(path), HasSubstr("No such file")));
  std::ofstream(path) << kThree;
  EXPECT_EQ(resolver.cluster_spec().num_tasks("worker"), 3);
  std::ofstream(path) << "nonsense";
  EXPECT_THAT(refused(), HasSubstr(path + ", byte "));
  std::filesystem::resize_file(path, PodList::kMaxBytes + 1);
  EXPECT_THAT(refused(), AllOf(HasSubstr(path), HasSubstr("more than 16777216 bytes")));
  std::remove(path.c_str());
  EXPECT_THAT(message_of<ConfigError>(
                  [] { (void)KubernetesResolver(PodList::in_file("/dev/zero")).cluster_spec(); }),
              AllOf(HasSubstr("/dev/zero"), HasSubstr("not a regular file")));
}

TEST(KubernetesResolver, OptionsAreChecked) {
  for (const int port : {0, -1, 65536}) {
    EXPECT_THAT(message_of<InvalidUsage>(
                    [&] { KubernetesResolver(PodList::of_text("{}"), {.port = port}); }),
                HasSubstr("port is " + std::to_string(port)));
  }
  EXPECT_THAT(message_of<ConfigError>([] {
                KubernetesResolver(PodList::of_text("{}"), {.jobs = {{"worker", {"=x"}}}});
              }),
              HasSubstr("label selector, byte 0"));
}

}  // namespace
}  // namespace lockstep
