#include "cluster/label_selector.h"

#include <algorithm>

#include "cluster/text.h"

namespace lockstep::cluster {
namespace {

using Requirement = LabelSelector::Requirement;
using Rule = Requirement::Rule;

bool is_word(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '.' ||
         c == '_' || c == '-' || c == '/';
}

class Reader {
 public:
  explicit Reader(const std::string& text)
      : text_{.name = "label selector", .text = text}, next_(0) {}

  std::vector<Requirement> read() {
    std::vector<Requirement> all;
    if (at_end()) return all;
    while (true) {
      all.push_back(requirement());
      if (at_end()) return all;
      if (!take(",")) fail("a comma or the end is expected");
    }
  }

 private:
  Requirement requirement() {
    if (take("!")) return {.rule = Rule::absent, .label = label()};
    std::string name = label();
    if (take("!=")) return {.rule = Rule::not_in, .label = name, .values = {word()}};
    if (take("==") || take("=")) return {.rule = Rule::in, .label = name, .values = {word()}};
    if (at_end() || text_.text[next_] == ',') return {.rule = Rule::exists, .label = name};
    const std::size_t start = next_;
    const std::string operation = word();
    if (operation == "in") return {.rule = Rule::in, .label = name, .values = values()};
    if (operation == "notin") return {.rule = Rule::not_in, .label = name, .values = values()};
    next_ = start;
    fail("=, ==, !=, in or notin is expected");
  }

  std::vector<std::string> values() {
    if (!take("(")) fail("( is expected");
    std::vector<std::string> all = {word()};
    while (take(",")) all.push_back(word());
    if (!take(")")) fail("a comma or ) is expected");
    return all;
  }

  std::string label() {
    std::string name = word();
    if (name.empty()) fail("the name of a label is expected");
    return name;
  }

  /// May be empty: so may values of labels.
  std::string word() {
    skip();
    const std::size_t start = next_;
    while (next_ < text_.text.size() && is_word(text_.text[next_])) ++next_;
    return text_.text.substr(start, next_ - start);
  }

  bool take(std::string_view what) {
    skip();
    if (!std::string_view(text_.text).substr(next_).starts_with(what)) return false;
    next_ += what.size();
    return true;
  }

  bool at_end() {
    skip();
    return next_ == text_.text.size();
  }

  void skip() { next_ = std::min(text_.text.find_first_not_of(' ', next_), text_.text.size()); }

  [[noreturn]] void fail(std::string_view rule) {
    refuse(text_, next_, rule, "write it as kubectl takes it: job-name=train,tier in (a,b)");
  }

  const Variable text_;
  std::size_t next_;
};

}  // namespace

LabelSelector LabelSelector::parse(const std::string& text) {
  LabelSelector selector;
  selector.requirements_ = Reader(text).read();
  return selector;
}

bool LabelSelector::selects(const std::map<std::string, std::string>& labels) const {
  return std::all_of(requirements_.begin(), requirements_.end(), [&](const Requirement& one) {
    const auto found = labels.find(one.label);
    const bool exists = found != labels.end();
    const bool listed = exists && std::find(one.values.begin(), one.values.end(), found->second) !=
                                      one.values.end();
    switch (one.rule) {
      case Rule::in:
        return listed;
      case Rule::not_in:
        return !listed;
      case Rule::exists:
        return exists;
      case Rule::absent:
        return !exists;
    }
    return false;
  });
}

}  // namespace lockstep::cluster
