#include "coll/preferences.h"

#include <fmt/format.h>

namespace lockstep::coll {
namespace {

template <class Value>
Value understood(Status (*parse)(std::string_view, Value&), const std::string& option,
                 const char* variable, const std::string& setting) {
  Value value;
  raise_if_error(parse(option, value));
  if (!option.empty()) return value;
  if (const Status status = parse(setting, value); !status.ok()) {
    throw ConfigError(fmt::format("{}={}: {}", variable, setting, status.message()));
  }
  return value;
}

}  // namespace

Preferences preferences_of(const SessionOptions& options, const Environment& surroundings) {
  return {
      .costs = understood(plan::parse_costs, options.costs, "LOCKSTEP_COSTS", surroundings.costs),
      .overrides = understood(plan::parse_overrides, options.algorithms, "LOCKSTEP_ALGORITHMS",
                              surroundings.algorithms)};
}

}  // namespace lockstep::coll
