#include "doctor/names.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <netdb.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <map>

#include "cluster/addresses.h"
#include "sys/address.h"
#include "sys/host_identity.h"
#include "sys/lookups.h"

namespace lockstep::tool {
namespace {

constexpr double kSlow = 1000;  // milliseconds
constexpr auto kPatience = std::chrono::seconds(5);

struct Lookup {
  std::vector<std::string> numbers;
  std::string error;
  double milliseconds = 0;
  bool loopback = false;

  [[nodiscard]] std::string text() const {
    return fmt::format("{} ({:.1f} ms)", fmt::join(numbers, ", "), milliseconds);
  }
};

bool is_number(const std::string& host) {
  std::array<unsigned char, sizeof(in6_addr)> ignored{};
  return ::inet_pton(AF_INET, host.c_str(), ignored.data()) == 1 ||
         ::inet_pton(AF_INET6, host.c_str(), ignored.data()) == 1;
}

Lookup look_up(const std::string& host) {
  sys::Lookups lookups;
  const auto began = std::chrono::steady_clock::now();
  const auto answer = lookups.find(host, Deadline::after(kPatience));
  const std::chrono::duration<double, std::milli> taken = std::chrono::steady_clock::now() - began;
  Lookup lookup{.numbers = {}, .error = {}, .milliseconds = taken.count()};
  if (!answer) {
    lookup.error = fmt::format("no answer of the resolver within {} s", kPatience.count());
  } else if (answer->error != 0) {
    lookup.error = ::gai_strerror(answer->error);
  } else {
    for (const sys::SocketAddress& address : answer->addresses) {
      lookup.numbers.push_back(address.host());
      lookup.loopback = lookup.loopback || address.is_loopback();
    }
  }
  return lookup;
}

Finding slow_or_ok(const std::string& what, const Lookup& lookup) {
  if (lookup.milliseconds <= kSlow) return {Verdict::ok, "names", what, ""};
  return {Verdict::warning, "names", what + ", slowly",
          "look at the resolver (/etc/resolv.conf), or write the host into /etc/hosts"};
}

/// Whether others may have to find this host by its name.
enum class Matters : unsigned char { no, yes };

Finding check_own_name(Matters matters) {
  const bool needed = matters == Matters::yes;
  const std::string name = sys::host_name();
  const Lookup lookup = look_up(name);
  if (!lookup.error.empty()) {
    return {needed ? Verdict::warning : Verdict::ok, "names",
            fmt::format("this host is called {}, which does not resolve: {}", name, lookup.error),
            needed ? "other hosts must be given a name or number that does" : ""};
  }
  const std::string what = fmt::format("this host is called {} and is {}", name, lookup.text());
  if (needed && lookup.loopback) {
    return {Verdict::warning, "names", what,
            "its own name leads to itself only: take that line out of /etc/hosts, or give the "
            "cluster numbers"};
  }
  return slow_or_ok(what, lookup);
}

Finding check_host(const std::string& host, const std::string& address, bool own) {
  const Lookup lookup = look_up(host);
  if (!lookup.error.empty()) {
    return {Verdict::problem, "names",
            fmt::format("{} does not resolve: {}", address, lookup.error),
            "check the name, /etc/hosts and the resolver, or write the address in numbers"};
  }
  const std::string what = fmt::format("{} is {}", address, lookup.text());
  if (lookup.loopback && !sys::host_is_named()) {
    return {Verdict::problem, "names", what,
            own ? "this rank would listen where no other host comes: correct /etc/hosts, or give "
                  "the number under which others know this host"
                : "calls to that rank would stay on this host: correct /etc/hosts"};
  }
  return slow_or_ok(what, lookup);
}

}  // namespace

Findings check_names(const std::vector<std::string>& addresses, int rank) {
  std::map<std::string, std::size_t> hosts;  // and the first rank of each
  const bool nobody_is_called = cluster::are_of_this_host(addresses);
  for (std::size_t at = 0; at < addresses.size() && !nobody_is_called; ++at) {
    const std::string& text = addresses[at];
    if (text.empty() || text.starts_with("unix:")) continue;
    hosts.emplace(sys::Address::parse(text).host, at);
  }
  const bool by_name = std::any_of(hosts.begin(), hosts.end(),
                                   [](const auto& host) { return !is_number(host.first); });
  Findings findings = {check_own_name(by_name ? Matters::yes : Matters::no)};
  for (const auto& [host, at] : hosts) {
    findings.push_back(check_host(host, addresses[at], static_cast<int>(at) == rank));
  }
  return findings;
}

}  // namespace lockstep::tool
