// Environment variables as texts that users and launchers wrote, and errors that say where they
// err.
#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>

#include "lockstep/cluster_resolver.h"

namespace lockstep::cluster {

struct Variable {
  std::string name;
  std::string text;
};

/// ConfigError: the variable, the byte, the rule, 40 characters around the byte, what to do.
[[noreturn]] void refuse(const Variable& variable, std::size_t offset, std::string_view rule,
                         std::string_view advice);

/// The text as base/printable.h shows it. Of more than 200 bytes: the first 100 and the last 100.
std::string printable(std::string_view text);

/// The first of the names that is set.
std::optional<Variable> find_variable(const EnvironmentView& variables,
                                      std::initializer_list<const char*> names);
/// The same; ConfigError names them all if none is, and `reader`, who needs it.
Variable need_variable(const EnvironmentView& variables, std::initializer_list<const char*> names,
                       std::string_view reader);

struct Bounds {
  int lowest = 0;
  int highest = 0;
};
/// A whole number in decimal digits within bounds, nothing else.
int number_of(const Variable& variable, Bounds bounds);

/// "host:port", checked.
std::string address_of(const Variable& variable);

}  // namespace lockstep::cluster
