// Which task of a cluster this process is, as TF_CONFIG tells it.
#include <lockstep/cluster_resolver.h>
#include <lockstep/cluster_roles.h>

#include <cstdio>
#include <exception>
#include <iostream>

namespace ls = lockstep;

void show_task() {
  // A real program takes the variables of its process, which is the default.
  const ls::EnvironmentView variables = [](const std::string& name) -> std::optional<std::string> {
    if (name != "TF_CONFIG") return std::nullopt;
    return R"({"cluster": {"chief": ["node0:4000"], "worker": ["node1:4000", "node2:4000"]},
               "task": {"type": "worker", "index": 1}})";
  };
  const ls::TfConfigResolver resolver({}, variables);
  const ls::ClusterSpec cluster = resolver.cluster_spec();
  const std::string type = resolver.task_type().value();
  const int index = resolver.task_id().value();
  std::cout << cluster << "\n";
  std::printf("%s %d listens at %s and is number %d of %d\n", type.c_str(), index,
              cluster.task_address(type, index).c_str(), ls::id_in_cluster(cluster, type, index),
              ls::worker_count(cluster, type));
}

int main() {
  try {
    show_task();
  } catch (const std::exception& error) {  // a variable that is missing or wrong, by name
    std::cerr << error.what() << "\n";
    return 1;
  }
}
