// Verb: the call of the user's program that this thread carries out, and where it stands there.
// What workers send each other on its behalf is described by it, so that messages name the user's
// call and not a line of lockstep.
//
//   const Verb verb("gather", here);              // in every public call that workers meet in
//   const Verb verb("assign", here, "total");     // of a variable
//   Verb::describe("float32[3]")                  // assign "total" float32[3]
//
// The outermost one counts: the reduction inside of all_reduce() is the user's all_reduce(). A
// merge function runs on replica 0's thread, so it has the verb that its replica waits in.
//
// Thread rule: belongs to the thread that makes it; ends in the reverse order of beginning.
#pragma once

#include <string>
#include <string_view>

#include "lockstep/here.h"

namespace lockstep::detail {

class Verb {
 public:
  /// What it is given outlives it.
  Verb(std::string_view name, Here here, std::string_view subject = {}) noexcept;
  ~Verb();
  Verb(const Verb&) = delete;
  Verb& operator=(const Verb&) = delete;

  /// The current verb, its subject, and what is added; without a verb, what is added alone.
  static std::string describe(std::string_view added);
  /// Of the current verb; no file if there is none.
  static Here place() noexcept;
  /// The same for a message: ", at train.cc:88"; empty if there is none.
  static std::string place_text();
  /// What the current verb is done to: a variable. Empty if there is none.
  static std::string_view subject() noexcept;

 private:
  std::string_view name_;
  std::string_view subject_;
  Here here_;
  bool outermost_;
};

}  // namespace lockstep::detail
