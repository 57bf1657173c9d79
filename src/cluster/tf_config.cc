#include "cluster/tf_config.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <map>
#include <vector>

#include "base/log.h"
#include "cluster/addresses.h"
#include "cluster/json_tree.h"

namespace lockstep::cluster {
namespace {

using Kind = JsonNode::Kind;

/// The largest cluster, 65,536 tasks, fits. TF_CONFIG itself has 4 levels.
constexpr JsonLimits kLimits{.bytes = 1 << 20, .levels = 16};

/// What Python's int() takes of a text: spaces around, a sign, digits with single underscores
/// between them. nullopt for anything else and for what an int cannot hold.
std::optional<int> python_int(std::string_view text) {
  constexpr std::string_view spaces = " \t\n\r\f\v";
  const auto first = text.find_first_not_of(spaces);
  if (first == std::string_view::npos) return std::nullopt;
  text = text.substr(first, text.find_last_not_of(spaces) - first + 1);
  std::string digits;
  if (text.front() == '-') digits = "-";
  if (text.front() == '-' || text.front() == '+') text.remove_prefix(1);
  bool after_digit = false;
  for (const char c : text) {
    const bool is_digit = c >= '0' && c <= '9';
    if (!is_digit && !(c == '_' && after_digit)) return std::nullopt;
    if (is_digit) digits += c;
    after_digit = is_digit;
  }
  if (!after_digit) return std::nullopt;
  int value = 0;
  const auto parsed = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (parsed.ec != std::errc()) return std::nullopt;
  return value;
}

/// The same of a number with a fraction or an exponent: the fraction is dropped.
std::optional<int> python_int_of_real(const std::string& text) {
  double value = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), value);
  if (parsed.ec != std::errc() || std::fabs(value) > 2147483647.0) return std::nullopt;
  return static_cast<int>(value);
}

class Reader {
 public:
  explicit Reader(const Variable& variable) : variable_(variable) {}

  TfConfig read() {
    const JsonNode root = parse_json(variable_, kLimits);
    expect(root, Kind::object, "TF_CONFIG", R"(write {"cluster": {...}, "task": {...}})");
    TfConfig config;
    if (const JsonNode* cluster = root.find("cluster")) config.cluster = cluster_of(*cluster);
    if (const JsonNode* task = root.find("task")) {
      expect(*task, Kind::object, "\"task\"", R"(write {"type": "worker", "index": 0})");
      if (const JsonNode* type = task->find("type")) config.task_type = type_of(*type);
      if (const JsonNode* index = task->find("index")) config.task_id = index_of(*index);
    }
    config.rpc_layer = string_of(root, "rpc_layer");
    config.session_master = string_of(root, "session_master");
    return config;
  }

 private:
  void expect(const JsonNode& node, Kind kind, std::string_view what, std::string_view advice) {
    if (node.kind == kind) return;
    refuse(variable_, node.offset,
           fmt::format("{} is {} and must be {}", what, to_string(node.kind), to_string(kind)),
           advice);
  }

  std::optional<std::string> string_of(const JsonNode& object, std::string_view key) {
    const JsonNode* node = object.find(key);
    if (node == nullptr || node->kind == Kind::null) return std::nullopt;
    expect(*node, Kind::string, fmt::format("\"{}\"", key), "write it in quotes");
    return node->text;
  }

  std::string type_of(const JsonNode& node) {
    if (node.kind != Kind::integer && node.kind != Kind::real) {
      expect(node, Kind::string, "the task's type", "write chief, worker, ps or evaluator");
    }
    return node.text;
  }

  int index_of(const JsonNode& node) {
    std::optional<int> index;
    if (node.kind == Kind::integer || node.kind == Kind::string) index = python_int(node.text);
    if (node.kind == Kind::boolean) index = node.text == "true" ? 1 : 0;
    if (node.kind == Kind::real) {
      index = python_int_of_real(node.text);
      log_warning("TF_CONFIG, byte {}: the task's index is {}; taken as a whole number",
                  node.offset, node.text);
    }
    if (!index) {
      refuse(variable_, node.offset, "the task's index is not a number that fits",
             "write the task's place in the list of its job, counted from 0");
    }
    return *index;
  }

  ClusterSpec cluster_of(const JsonNode& node) {
    expect(node, Kind::object, "\"cluster\"", R"(write {"worker": ["host:port", ...]})");
    std::map<std::string, JobTasks> jobs;
    for (const auto& [key, tasks] : node.members) {
      if (key.text.empty()) {
        refuse(variable_, key.offset, "a job has no name",
               "name it chief, worker, ps or evaluator");
      }
      jobs.emplace(key.text, tasks_of(printable(key.text), tasks));
    }
    check_together("TF_CONFIG", entries_);
    return ClusterSpec(std::move(jobs));
  }

  std::map<int, std::string> tasks_of(const std::string& job, const JsonNode& node) {
    std::map<int, std::string> tasks;
    if (node.kind == Kind::array) {
      if (node.items.size() > static_cast<std::size_t>(ClusterSpec::kMaxTasks)) {
        refuse(variable_, node.offset,
               fmt::format("job '{}' has {} tasks, more than {}", job, node.items.size(),
                           ClusterSpec::kMaxTasks),
               "make the job smaller");
      }
      for (const JsonNode& item : node.items) {
        const int index = static_cast<int>(tasks.size());
        tasks.emplace(index, task_of(job, index, item));
      }
      return tasks;
    }
    expect(node, Kind::object, fmt::format("job '{}'", job),
           R"(write ["host:port", ...] or {"0": "host:port", ...})");
    for (const auto& [key, item] : node.members) {
      const std::optional<int> index = python_int(key.text);
      if (!index || *index < 0 || *index >= ClusterSpec::kMaxTasks) {
        refuse(variable_, key.offset, fmt::format("the index of a task of job '{}' is wrong", job),
               fmt::format("write a number from 0 to {} in quotes", ClusterSpec::kMaxTasks - 1));
      }
      if (!tasks.emplace(*index, task_of(job, *index, item)).second) {
        refuse(variable_, key.offset, fmt::format("task {} of job '{}' comes twice", *index, job),
               "keep one of them");
      }
    }
    return tasks;
  }

  std::string task_of(const std::string& job, int index, const JsonNode& node) {
    const std::string name = fmt::format("{} {}", job, index);
    expect(node, Kind::string, fmt::format("the address of {}", name), R"(write "host:port")");
    if (const std::string problem = address_problem(node.text); !problem.empty()) {
      refuse(variable_, node.offset, fmt::format("{}: {}", name, problem), "correct the entry");
    }
    entries_.push_back(
        {.name = fmt::format("{} (byte {})", name, node.offset), .address = node.text});
    return node.text;
  }

  const Variable& variable_;
  std::vector<Entry> entries_;
};

}  // namespace

TfConfig parse_tf_config(const std::string& text) {
  const Variable variable{.name = "TF_CONFIG", .text = text};
  return Reader(variable).read();
}

}  // namespace lockstep::cluster
