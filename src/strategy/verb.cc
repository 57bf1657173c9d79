#include "strategy/verb.h"

#include <fmt/format.h>

namespace lockstep::detail {

namespace {
thread_local const Verb* current = nullptr;
}  // namespace

Verb::Verb(std::string_view name, Here here, std::string_view subject) noexcept
    : name_(name), subject_(subject), here_(here), outermost_(current == nullptr) {
  if (outermost_) current = this;
}

Verb::~Verb() {
  if (outermost_) current = nullptr;
}

std::string Verb::describe(std::string_view added) {
  if (current == nullptr) return std::string(added);
  std::string text(current->name_);
  if (!current->subject_.empty()) text += fmt::format(" \"{}\"", current->subject_);
  // A text for other messages may begin with the verb itself.
  if (added.starts_with(current->name_)) {
    const std::string_view rest = added.substr(current->name_.size());
    if (rest.empty()) return text;
    if (rest.starts_with(": ")) added = rest.substr(2);
    if (rest.starts_with(" ")) added = rest.substr(1);
  }
  if (!added.empty()) text += fmt::format(" {}", added);
  return text;
}

Here Verb::place() noexcept { return current != nullptr ? current->here_ : Here{}; }

std::string Verb::place_text() {
  const Here here = place();
  std::string_view file = here.file;
  if (file.empty()) return {};
  file.remove_prefix(file.rfind('/') + 1);  // npos + 1 is 0
  return fmt::format(", at {}:{}", file, here.line);
}

std::string_view Verb::subject() noexcept {
  return current != nullptr ? current->subject_ : std::string_view();
}

}  // namespace lockstep::detail
