// The pods in a PodList, the JSON answer of the Kubernetes API:
//
//   {"kind": "PodList", "items": [{"metadata": {"name": "a", "labels": {"job-name": "train"}},
//                                  "status": {"phase": "Running", "hostIP": "10.0.0.1"}}]}
//
// Other keys are left alone, of which a real list has many.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "cluster/text.h"

namespace lockstep::cluster {

struct Pod {
  std::size_t offset = 0;  // where it begins in the text
  std::string path;        // "items[3]"
  std::string name = {};
  std::map<std::string, std::string> labels = {};
  // Empty: not told. A pod that waits for a node has no address yet.
  std::string phase = {};
  std::string host_ip = {};
  std::string pod_ip = {};
};

/// In the order of the list. ConfigError with the key and the byte for what is wrong.
std::vector<Pod> parse_pods(const Variable& list);

}  // namespace lockstep::cluster
