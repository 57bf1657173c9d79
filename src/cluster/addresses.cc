#include "cluster/addresses.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "lockstep/error.h"
#include "sys/address.h"
#include "sys/host_identity.h"

namespace lockstep::cluster {
namespace {

using sys::Address;

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  });
  return text;
}

bool is_tcp(const std::string& address) {
  return Address::parse(address).kind == Address::Kind::tcp;
}

/// One spelling for one place: names of hosts do not tell capitals from small letters.
std::string canonical(const std::string& text) {
  Address address = Address::parse(text);
  address.host = lower(address.host);
  return address.to_string();
}

}  // namespace

std::string address_problem(const std::string& address) {
  constexpr std::size_t longest = 253 + std::string_view(":65535").size();  // that of a name
  if (address.size() > longest) {
    return fmt::format("it has {} characters; the longest address has {}", address.size(), longest);
  }
  try {
    const Address parsed = Address::parse(address);
    if (parsed.kind == Address::Kind::tcp && parsed.port == 0) {
      return fmt::format("\"{}\" has port 0; others must know the port beforehand, 1 to 65535",
                         address);
    }
    return {};
  } catch (const ConfigError& e) {
    return e.what();
  }
}

bool is_loopback(const std::string& address) {
  const Address parsed = Address::parse(address);
  if (parsed.kind == Address::Kind::unix_socket) return true;
  const std::string host = lower(parsed.host);
  return host == "localhost" || host == "::1" || host.starts_with("127.");
}

bool are_of_this_host(std::span<const std::string> addresses) {
  if (sys::host_is_named()) return false;
  std::size_t loopback = 0;
  std::size_t own_name = 0;
  std::size_t silent = 0;  // about where the rank is
  const std::string this_host = sys::host_name();
  std::string first;  // a short name stands for every domain, but not for two of them
  for (const std::string& address : addresses) {
    if (address.empty() || !is_tcp(address)) {
      ++silent;
    } else if (is_loopback(address)) {
      ++loopback;
    } else {
      const std::string host = Address::parse(address).host;
      if (first.empty()) first = host;
      if (sys::same_host_name(host, this_host) && sys::same_host_name(host, first)) ++own_name;
    }
  }
  // A rank whose address is not known may be elsewhere, unless it could not reach the others then.
  return own_name == addresses.size() || (loopback > 0 && loopback + silent == addresses.size());
}

void check_together(std::string_view source, std::span<const Entry> entries) {
  std::map<std::string, const Entry*> seen;
  const Entry* near = nullptr;
  const Entry* far = nullptr;
  for (const Entry& entry : entries) {
    if (entry.address.empty()) continue;
    const auto [place, is_new] = seen.emplace(canonical(entry.address), &entry);
    if (!is_new) {
      throw ConfigError(fmt::format("{}: {} and {} have the same address, {}; give each its own",
                                    source, place->second->name, entry.name, entry.address));
    }
    if (is_tcp(entry.address)) (is_loopback(entry.address) ? near : far) = &entry;
  }
  if (near != nullptr && far != nullptr) {
    throw ConfigError(fmt::format(
        "{}: {} is at {}, which only its own host can reach, but {} is at {}; give every task an "
        "address that all hosts reach",
        source, near->name, near->address, far->name, far->address));
  }
}

}  // namespace lockstep::cluster
