#include "tests/processes/two_networks.h"

#include <fmt/format.h>
#include <unistd.h>

#include "tests/processes/namespaces.h"

namespace lockstep::processes {

TwoNetworks::TwoNetworks() : prefix_(fmt::format("lsfault{}-", ::getpid())) {
  try {
    const std::string router = prefix_ + "r";
    run({"ip", "netns", "add", router});
    for (const int side : {0, 1}) {
      const std::string space = fmt::format("{}{}", prefix_, side);
      const std::string port = fmt::format("side{}", side);
      const std::string gateway = fmt::format("10.213.{}.1", 90 + side);
      run({"ip", "netns", "add", space});
      run({"ip", "link", "add", "eth", "netns", space, "type", "veth", "peer", "name", port,
           "netns", router});
      run({"ip", "-n", router, "address", "add", gateway + "/24", "dev", port});
      run({"ip", "-n", router, "link", "set", port, "up"});
      run({"ip", "-n", space, "address", "add", host(side) + "/24", "dev", "eth"});
      run({"ip", "-n", space, "link", "set", "eth", "up"});
      run({"ip", "-n", space, "link", "set", "lo", "up"});
      run({"ip", "-n", space, "route", "add", "default", "via", gateway});
    }
    mend();
  } catch (...) {
    remove();
    throw;
  }
}

TwoNetworks::~TwoNetworks() { remove(); }

void TwoNetworks::remove() noexcept {
  for (const char* name : {"0", "1", "r"}) remove_namespace(prefix_ + name);
}

std::vector<std::string> TwoNetworks::command(int side) const {
  return {"ip", "netns", "exec", fmt::format("{}{}", prefix_, side)};
}

std::string TwoNetworks::host(int side) { return fmt::format("10.213.{}.2", 90 + side); }

ClusterOptions TwoNetworks::cluster(const std::string& scenario, int each, Wire wire) const {
  ClusterOptions options{.ranks = 2 * each, .scenario = scenario, .wire = wire};
  for (int rank = 0; rank < options.ranks; ++rank) {
    const int side = rank < each ? 0 : 1;
    options.wrappers.push_back(command(side));
    options.addresses.push_back(fmt::format("{}:{}", host(side), 5000 + rank));
  }
  return options;
}

void TwoNetworks::forward(bool on) {
  run({"ip", "netns", "exec", prefix_ + "r", "sh", "-c",
       fmt::format("echo {} > /proc/sys/net/ipv4/ip_forward", on ? 1 : 0)});
}

void TwoNetworks::cut() { forward(false); }
void TwoNetworks::mend() { forward(true); }

void TwoNetworks::narrow(const std::string& rate) {
  for (const char* port : {"side0", "side1"}) {
    run({"tc", "-n", prefix_ + "r", "qdisc", "replace", "dev", port, "root", "tbf", "rate", rate,
         "burst", "16kb", "latency", "200ms"});
  }
}

}  // namespace lockstep::processes
