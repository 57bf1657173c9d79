// A JSON text as a tree that knows where each value stands, so that errors in its meaning can name
// the byte too.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "cluster/text.h"

namespace lockstep::cluster {

struct JsonNode {
  enum class Kind : unsigned char { null, boolean, integer, real, string, array, object };

  Kind kind = Kind::null;
  std::size_t offset = 0;
  std::string text;                                         // a string's content, else as written
  std::vector<JsonNode> items = {};                         // array
  std::vector<std::pair<JsonNode, JsonNode>> members = {};  // object: key (a string) and value

  /// The value of a member; null pointer if there is none.
  [[nodiscard]] const JsonNode* find(std::string_view key) const;
};

/// "a list", "the number", for messages.
std::string_view to_string(JsonNode::Kind kind);

/// How much of a text is read. A node takes about 100 times the memory of its shortest text.
struct JsonLimits {
  std::size_t bytes = 0;
  std::size_t levels = 0;  // of lists and objects inside each other
};

/// ConfigError for what is not JSON, and for what JSON leaves open: a byte order mark, a NUL byte,
/// a key that comes twice, more than the limits. The locale of the process has no influence.
JsonNode parse_json(const Variable& variable, JsonLimits limits);

}  // namespace lockstep::cluster
