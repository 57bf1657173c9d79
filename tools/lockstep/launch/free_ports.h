// Ports nobody listens on at this moment. Another program may take one before it is used.
#pragma once

#include <cstdint>
#include <vector>

namespace lockstep::tool {

/// Different ones. SystemError if the machine has none left.
std::vector<std::uint16_t> free_ports(int count);

}  // namespace lockstep::tool
