// UsageError: the command line asks for something that does not exist; the message says what does.
#pragma once

#include <stdexcept>

namespace lockstep::tool {

class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace lockstep::tool
