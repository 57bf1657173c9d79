// An environment for tests, and what they ask of errors.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/log.h"
#include "lockstep/cluster_resolver.h"
#include "lockstep/error.h"
#include "lockstep/log.h"

namespace lockstep {

using Variables = std::map<std::string, std::string>;

inline EnvironmentView view_of(Variables variables) {
  return [variables = std::move(variables)](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  };
}

inline Variables with(Variables variables, const Variables& more) {
  for (const auto& [name, value] : more) variables[name] = value;
  return variables;
}

inline Variables without(Variables variables, const std::string& name) {
  variables.erase(name);
  return variables;
}

/// The message of the error E that `call` must throw, "" if it does not.
template <class E, class Call>
std::string message_of(Call call) {
  try {
    call();
  } catch (const E& e) {
    EXPECT_EQ(e.code(), Code::invalid_argument);
    return e.what();
  } catch (const std::exception& e) {
    ADD_FAILURE() << "another error: " << e.what();
    return {};
  }
  ADD_FAILURE() << "no error";
  return {};
}

/// What was logged during its life.
class Logged {
 public:
  Logged() {
    set_log_sink([this](LogLevel, std::string_view text) { lines_.emplace_back(text); });
  }
  ~Logged() { set_log_sink({}); }
  Logged(const Logged&) = delete;
  Logged& operator=(const Logged&) = delete;

  [[nodiscard]] const std::vector<std::string>& lines() const {
    flush_log();
    return lines_;
  }

 private:
  std::vector<std::string> lines_;
};

}  // namespace lockstep
