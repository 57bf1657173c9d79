// HeldPorts: TCP ports of this host that nobody else is given, for a program that tells others
// where to listen. A port that was merely looked up could be taken by any outgoing connection
// before it is used.
//
//   const HeldPorts ports(2);
//   start_server(ports.numbers()[0]);  // listens there: SO_REUSEADDR, as PosixNetwork sets it
#pragma once

#include <cstdint>
#include <vector>

#include "sys/descriptor.h"

namespace lockstep::sys {

class HeldPorts {
 public:
  /// Different ones. SystemError if the machine has none left.
  explicit HeldPorts(int count);

  [[nodiscard]] const std::vector<std::uint16_t>& numbers() const noexcept { return numbers_; }

 private:
  std::vector<Descriptor> sockets_;  // bound and never listening: a caller is refused
  std::vector<std::uint16_t> numbers_;
};

}  // namespace lockstep::sys
