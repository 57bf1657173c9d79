#include "cluster/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "base/printable.h"
#include "cluster/addresses.h"
#include "lockstep/error.h"

namespace lockstep::cluster {
namespace {

/// 20 characters before the byte and 20 from it on.
std::string excerpt(std::string_view text, std::size_t offset) {
  constexpr std::size_t reach = 20;
  const std::size_t first = offset > reach ? offset - reach : 0;
  const std::size_t end = std::min(text.size(), offset + reach);
  return fmt::format("{}{}{}", first > 0 ? "..." : "", printable(text.substr(first, end - first)),
                     end < text.size() ? "..." : "");
}

std::string names_of(std::initializer_list<const char*> names) {
  return fmt::format("{}", fmt::join(names, " or "));
}

}  // namespace

std::string printable(std::string_view text) {
  constexpr std::size_t reach = 100;
  if (text.size() > 2 * reach) {
    return fmt::format("{}...{}", printable(text.substr(0, reach)),
                       printable(text.substr(text.size() - reach)));
  }
  return lockstep::printable(text);
}

void refuse(const Variable& variable, std::size_t offset, std::string_view rule,
            std::string_view advice) {
  offset = std::min(offset, variable.text.size());
  throw ConfigError(fmt::format("{}, byte {}: {}, {} `{}`; {}", variable.name, offset, rule,
                                offset == variable.text.size() ? "at the end of" : "near",
                                excerpt(variable.text, offset), advice));
}

std::optional<Variable> find_variable(const EnvironmentView& variables,
                                      std::initializer_list<const char*> names) {
  for (const char* name : names) {
    if (auto text = variables(name)) return Variable{.name = name, .text = std::move(*text)};
  }
  return std::nullopt;
}

Variable need_variable(const EnvironmentView& variables, std::initializer_list<const char*> names,
                       std::string_view reader) {
  if (auto found = find_variable(variables, names)) return std::move(*found);
  throw ConfigError(fmt::format("{} is not set, which {}", names_of(names), reader));
}

int number_of(const Variable& variable, Bounds bounds) {
  const std::string& text = variable.text;
  const std::string advice =
      fmt::format("set it to a number from {} to {}", bounds.lowest, bounds.highest);
  const auto wrong =
      std::find_if(text.begin(), text.end(), [](char c) { return c < '0' || c > '9'; });
  if (text.empty() || wrong != text.end()) {
    refuse(variable, static_cast<std::size_t>(wrong - text.begin()), "a digit is expected", advice);
  }
  int value = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), value);
  if (parsed.ec != std::errc() || value < bounds.lowest || value > bounds.highest) {
    refuse(variable, 0, "the number is out of range", advice);
  }
  return value;
}

std::string address_of(const Variable& variable) {
  if (const std::string problem = address_problem(variable.text); !problem.empty()) {
    refuse(variable, 0, problem, "set it to where rank 0 shall listen");
  }
  return variable.text;
}

}  // namespace lockstep::cluster
