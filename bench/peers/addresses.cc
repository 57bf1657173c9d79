#include "bench/peers/addresses.h"

#include <sstream>

namespace lockstep::bench::peers {

std::vector<std::string> addresses_of(const RankOptions& options) {
  std::vector<std::string> addresses;
  std::istringstream text(options.addresses);
  for (std::string address; std::getline(text, address, ',');) addresses.push_back(address);
  return addresses;
}

std::string address_of(const RankOptions& options) {
  return addresses_of(options).at(static_cast<std::size_t>(options.rank));
}

std::string host_of(const std::string& address) { return address.substr(0, address.rfind(':')); }

int port_of(const std::string& address) {
  return std::stoi(address.substr(address.rfind(':') + 1));
}

}  // namespace lockstep::bench::peers
