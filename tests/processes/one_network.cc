#include "tests/processes/one_network.h"

#include <fmt/format.h>
#include <unistd.h>

#include "tests/processes/namespaces.h"

namespace lockstep::processes {

OneNetwork::OneNetwork(int machines)
    : machines_(machines), prefix_(fmt::format("lsfault{}-", ::getpid())) {
  try {
    const std::string hub = prefix_ + "s";
    run({"ip", "netns", "add", hub});
    run({"ip", "-n", hub, "link", "add", "switch", "type", "bridge"});
    run({"ip", "-n", hub, "link", "set", "switch", "up"});
    for (int machine = 0; machine < machines_; ++machine) {
      const std::string port = fmt::format("port{}", machine);
      run({"ip", "netns", "add", space(machine)});
      run({"ip", "link", "add", "eth", "netns", space(machine), "type", "veth", "peer", "name",
           port, "netns", hub});
      run({"ip", "-n", hub, "link", "set", port, "master", "switch", "up"});
      run({"ip", "-n", space(machine), "address", "add", host(machine) + "/24", "dev", "eth"});
      run({"ip", "-n", space(machine), "link", "set", "eth", "up"});
      run({"ip", "-n", space(machine), "link", "set", "lo", "up"});
    }
  } catch (...) {
    remove();
    throw;
  }
}

OneNetwork::~OneNetwork() { remove(); }

void OneNetwork::remove() noexcept {
  for (int machine = 0; machine < machines_; ++machine) remove_namespace(space(machine));
  remove_namespace(prefix_ + "s");
}

std::string OneNetwork::space(int machine) const { return fmt::format("{}{}", prefix_, machine); }

std::string OneNetwork::host(int machine) { return fmt::format("10.213.92.{}", 2 + machine); }

ClusterOptions OneNetwork::cluster(const std::string& scenario, Wire wire) const {
  ClusterOptions options{.ranks = machines_, .scenario = scenario, .wire = wire};
  for (int machine = 0; machine < machines_; ++machine) {
    options.wrappers.push_back({"ip", "netns", "exec", space(machine)});
    options.addresses.push_back(fmt::format("{}:{}", host(machine), 5000));
  }
  return options;
}

// They go to a card that no machine has.
void OneNetwork::lose(Way way) {
  run({"ip", "-n", space(way.from), "neigh", "replace", host(way.to), "lladdr", "02:00:00:00:00:01",
       "dev", "eth", "nud", "permanent"});
}

}  // namespace lockstep::processes
