// The JSON text of TF_CONFIG:
//
//   {"cluster": {"chief": ["a:1"], "worker": ["b:1", "c:1"]}, "task": {"type": "worker", "index":
//   1}}
//
// Accepted is what TensorFlow accepts, where it has a meaning: "index" may be anything that
// Python's int() takes ("1", 1.0), "type" may be a number, a job may be {"1": "b:1"}. Stricter: no
// key twice, at most 1 MiB and 16 levels, and addresses are checked.
#pragma once

#include <optional>
#include <string>

#include "cluster/text.h"
#include "lockstep/cluster_spec.h"

namespace lockstep::cluster {

struct TfConfig {
  ClusterSpec cluster;
  std::optional<std::string> task_type;
  std::optional<int> task_id;
  std::optional<std::string> rpc_layer;
  std::optional<std::string> session_master;
};

/// ConfigError with the byte for everything that is wrong with the text.
TfConfig parse_tf_config(const std::string& text);

}  // namespace lockstep::cluster
