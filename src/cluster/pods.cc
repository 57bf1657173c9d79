#include "cluster/pods.h"

#include <fmt/format.h>

#include "cluster/json_tree.h"
#include "lockstep/kubernetes_resolver.h"

namespace lockstep::cluster {
namespace {

using Kind = JsonNode::Kind;

/// The fields that Kubernetes manages are nested by the path of a field of a container.
constexpr std::size_t kMaxLevels = 64;

constexpr const char* kAdvice = "give what `kubectl get pods -o json` prints";

class Reader {
 public:
  explicit Reader(const Variable& list) : list_(list) {}

  std::vector<Pod> read() {
    const JsonNode root = parse_json(list_, {.bytes = PodList::kMaxBytes, .levels = kMaxLevels});
    expect(root, Kind::object, "the list of pods");
    const std::string kind = string_in(root, "", "kind");
    // kubectl calls it a List.
    if (!kind.empty() && kind != "PodList" && kind != "List") {
      refuse(list_, root.find("kind")->offset,
             fmt::format("\"kind\" is {} and must be PodList", printable(kind)), kAdvice);
    }
    const JsonNode* items = root.find("items");
    if (items == nullptr) refuse(list_, root.offset, "\"items\" is missing", kAdvice);
    expect(*items, Kind::array, "\"items\"");
    std::vector<Pod> pods;
    for (const JsonNode& item : items->items) {
      pods.push_back(pod_of(item, fmt::format("items[{}]", pods.size())));
    }
    return pods;
  }

 private:
  void expect(const JsonNode& node, Kind kind, std::string_view what) {
    if (node.kind == kind) return;
    refuse(list_, node.offset,
           fmt::format("{} is {} and must be {}", what, to_string(node.kind), to_string(kind)),
           kAdvice);
  }

  /// A member that may be missing or null: null pointer.
  const JsonNode* find(const JsonNode& object, std::string_view key, Kind kind,
                       std::string_view path) {
    const JsonNode* node = object.find(key);
    if (node == nullptr || node->kind == Kind::null) return nullptr;
    expect(*node, kind, fmt::format("\"{}{}\"", path, key));
    return node;
  }

  std::string string_in(const JsonNode& object, std::string_view path, std::string_view key) {
    const JsonNode* node = find(object, key, Kind::string, path);
    return node == nullptr ? "" : node->text;
  }

  Pod pod_of(const JsonNode& item, std::string path) {
    expect(item, Kind::object, fmt::format("\"{}\"", path));
    Pod pod{.offset = item.offset, .path = std::move(path)};
    const std::string inside = pod.path + ".";
    if (const JsonNode* metadata = find(item, "metadata", Kind::object, inside)) {
      pod.name = string_in(*metadata, inside + "metadata.", "name");
      if (const JsonNode* labels = find(*metadata, "labels", Kind::object, inside + "metadata.")) {
        for (const auto& [key, value] : labels->members) {
          expect(value, Kind::string,
                 fmt::format("\"{}metadata.labels.{}\"", inside, printable(key.text)));
          pod.labels.emplace(key.text, value.text);
        }
      }
    }
    if (pod.name.empty()) {
      refuse(list_, item.offset, fmt::format("\"{}metadata.name\" is missing", inside), kAdvice);
    }
    if (const JsonNode* status = find(item, "status", Kind::object, inside)) {
      pod.phase = string_in(*status, inside + "status.", "phase");
      pod.host_ip = string_in(*status, inside + "status.", "hostIP");
      pod.pod_ip = string_in(*status, inside + "status.", "podIP");
    }
    return pod;
  }

  const Variable& list_;
};

}  // namespace

std::vector<Pod> parse_pods(const Variable& list) { return Reader(list).read(); }

}  // namespace lockstep::cluster
