#include "cluster/json_tree.h"

#include <fmt/format.h>
#include <locale.h>

#include <map>
#include <nlohmann/json.hpp>

namespace lockstep::cluster {
namespace {

/// nlohmann's parser asks the locale of its thread for the decimal point.
class WithoutLocale {
 public:
  WithoutLocale() : before_(::uselocale(::newlocale(LC_ALL_MASK, "C", nullptr))) {}
  ~WithoutLocale() { ::uselocale(before_); }  // glibc's C locale is static: nothing to free
  WithoutLocale(const WithoutLocale&) = delete;
  WithoutLocale& operator=(const WithoutLocale&) = delete;

 private:
  locale_t before_;
};

/// Takes the events of nlohmann's parser, which do not say where they are: it walks through the
/// text in step with them. Whatever an event is about has been read without an error, so that
/// finding its end is simple.
class TreeBuilder : public nlohmann::json_sax<nlohmann::json> {
 public:
  TreeBuilder(const Variable& variable, JsonLimits limits) : variable_(variable), limits_(limits) {}

  bool null() override { return scalar(JsonNode::Kind::null); }
  bool boolean(bool) override { return scalar(JsonNode::Kind::boolean); }
  bool number_integer(number_integer_t) override { return scalar(JsonNode::Kind::integer); }
  bool number_unsigned(number_unsigned_t) override { return scalar(JsonNode::Kind::integer); }
  /// An integer too long for 64 bits comes here as well.
  bool number_float(number_float_t, const string_t& text) override {
    const bool whole = text.find_first_of(".eE") == std::string::npos;
    return scalar(whole ? JsonNode::Kind::integer : JsonNode::Kind::real);
  }
  bool binary(binary_t&) override { return false; }
  bool string(string_t& content) override {
    const std::size_t start = take_string();
    return add({.kind = JsonNode::Kind::string, .offset = start, .text = content});
  }
  bool key(string_t& content) override {
    const std::size_t start = take_string();
    const auto [first, is_new] = open_.back().keys.emplace(content, start);
    if (!is_new) {
      refuse(variable_, start, fmt::format("the key comes twice, first at byte {}", first->second),
             "keep one of them");
    }
    open_.back().node->members.emplace_back(
        JsonNode{.kind = JsonNode::Kind::string, .offset = start, .text = content}, JsonNode{});
    return true;
  }
  bool start_object(std::size_t) override { return start(JsonNode::Kind::object); }
  bool start_array(std::size_t) override { return start(JsonNode::Kind::array); }
  bool end_object() override { return end(); }
  bool end_array() override { return end(); }
  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception& error) override {
    const std::size_t offset = position == 0 ? 0 : position - 1;
    refuse(variable_, offset, fmt::format("this is not JSON ({})", reason(error.what())),
           advice(offset));
  }

  JsonNode take() { return std::move(root_); }

 private:
  /// A list or object that has not ended. It does not move: what grows around it are its
  /// descendants' places, never its own.
  struct Open {
    JsonNode* node;
    std::map<std::string, std::size_t> keys;  // and their offsets
  };

  /// Their message without its number and position: ours has the byte.
  static std::string reason(std::string_view what) {
    for (const std::string_view before : {"] ", "column ", ": "}) {
      const auto found = what.find(before);
      if (found != std::string_view::npos) what = what.substr(found + before.size());
    }
    return printable(what);
  }

  [[nodiscard]] std::string_view advice(std::size_t offset) const {
    const std::string_view text = variable_.text;
    if (offset >= text.size()) return "it ends too early: was it cut off, or eaten by a shell?";
    if (text[offset] == '\'') return "write strings in double quotes";
    const auto before = text.substr(0, offset).find_last_not_of(" \t\r\n");
    if ((text[offset] == '}' || text[offset] == ']') && before != std::string_view::npos &&
        text[before] == ',') {
      return "remove the comma before it";
    }
    return "write it as JSON";
  }

  /// To the next token; its offset.
  std::size_t skip() {
    next_ = std::min(variable_.text.find_first_not_of(" \t\r\n,:", next_), variable_.text.size());
    return next_;
  }

  std::size_t take_string() {
    const std::size_t start = skip();
    const std::string& text = variable_.text;
    for (++next_; next_ < text.size() && text[next_] != '"'; ++next_) {
      if (text[next_] == '\\') ++next_;
    }
    ++next_;
    return start;
  }

  bool scalar(JsonNode::Kind kind) {
    const std::size_t start = skip();
    next_ = std::min(variable_.text.find_first_of(" \t\r\n,]}", next_), variable_.text.size());
    return add(
        {.kind = kind, .offset = start, .text = variable_.text.substr(start, next_ - start)});
  }

  bool start(JsonNode::Kind kind) {
    const std::size_t offset = skip();
    ++next_;
    if (open_.size() == limits_.levels) {
      refuse(variable_, offset, fmt::format("there are more than {} levels", limits_.levels),
             "no cluster needs so many");
    }
    add({.kind = kind, .offset = offset, .text = {}});
    open_.push_back({.node = last_, .keys = {}});
    return true;
  }

  bool end() {
    skip();
    ++next_;
    open_.pop_back();
    return true;
  }

  bool add(JsonNode node) {
    if (open_.empty()) {
      root_ = std::move(node);
      last_ = &root_;
    } else if (open_.back().node->kind == JsonNode::Kind::array) {
      last_ = &open_.back().node->items.emplace_back(std::move(node));
    } else {
      last_ = &open_.back().node->members.back().second;
      *last_ = std::move(node);
    }
    return true;
  }

  const Variable& variable_;
  const JsonLimits limits_;
  std::size_t next_ = 0;
  JsonNode root_;
  JsonNode* last_ = nullptr;  // added last
  std::vector<Open> open_;
};

}  // namespace

const JsonNode* JsonNode::find(std::string_view key) const {
  for (const auto& [name, value] : members) {
    if (name.text == key) return &value;
  }
  return nullptr;
}

std::string_view to_string(JsonNode::Kind kind) {
  switch (kind) {
    case JsonNode::Kind::null:
      return "null";
    case JsonNode::Kind::boolean:
      return "true or false";
    case JsonNode::Kind::integer:
    case JsonNode::Kind::real:
      return "a number";
    case JsonNode::Kind::string:
      return "a string";
    case JsonNode::Kind::array:
      return "a list";
    case JsonNode::Kind::object:
      return "an object";
  }
  return "?";
}

JsonNode parse_json(const Variable& variable, JsonLimits limits) {
  if (variable.text.size() > limits.bytes) {
    refuse(variable, limits.bytes, fmt::format("the text has more than {} bytes", limits.bytes),
           "no cluster needs so many");
  }
  if (const auto nul = variable.text.find('\0'); nul != std::string::npos) {
    // nlohmann's parser takes it for the end of the text.
    refuse(variable, nul, "this is not JSON (it has a NUL byte)", "remove it");
  }
  if (variable.text.starts_with("\xEF\xBB\xBF")) {
    refuse(variable, 0, "this is not JSON (it begins with a byte order mark)",
           "remove the three bytes EF BB BF");
  }
  TreeBuilder builder(variable, limits);
  const WithoutLocale without_locale;
  nlohmann::json::sax_parse(variable.text, &builder);
  return builder.take();
}

}  // namespace lockstep::cluster
