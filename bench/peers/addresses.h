// The addresses of a contestant's ranks, as the driver gives them.
#pragma once

#include <string>
#include <vector>

#include "bench/peers/rank_main.h"

namespace lockstep::bench::peers {

std::vector<std::string> addresses_of(const RankOptions& options);
/// This rank's own.
std::string address_of(const RankOptions& options);
/// "10.0.0.1" and 7000 of "10.0.0.1:7000".
std::string host_of(const std::string& address);
int port_of(const std::string& address);

}  // namespace lockstep::bench::peers
