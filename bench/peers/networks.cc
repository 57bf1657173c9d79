#include "bench/peers/networks.h"

#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>
#include <stdexcept>

#include "bench/peers/process.h"

namespace lockstep::bench::peers {
namespace {

constexpr const char* kLink = "peer";
/// Less, and large segments are cut before they are sent and a late timer costs rate.
constexpr int kBucket = 128 << 10;

void quietly(const Command& command) noexcept {
  try {
    run_command(command);
  } catch (const std::exception&) {
    // It was not there, or cannot be helped.
  }
}

/// What a run that was killed has left behind.
void remove_leftovers() {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/run/netns", error)) {
    const std::string name = entry.path().filename();
    if (left_behind(name)) quietly({"ip", "netns", "delete", name});
  }
}

}  // namespace

double line_seconds(std::size_t bytes) noexcept {
  constexpr double kBytesPerSecond = 1e9 / 8;
  return (static_cast<double>(bytes) * 1514 / 1448 - kBucket) / kBytesPerSecond;
}

std::string Networks::host(int rank) { return fmt::format("10.213.77.{}", rank + 1); }
std::string Networks::subnet() { return "10.213.77.0/24"; }

Networks::Networks() : prefix_(own_name()) {
  if (geteuid() != 0) throw std::runtime_error("network namespaces need root");
  remove_leftovers();
  try {
    for (const char* rank : {"0", "1"}) run_command({"ip", "netns", "add", prefix_ + rank});
    run_command({"ip", "link", "add", kLink, "netns", prefix_ + "0", "type", "veth", "peer", "name",
                 kLink, "netns", prefix_ + "1"});
    for (const int rank : {0, 1}) {
      const std::string space = prefix_ + std::to_string(rank);
      run_command({"ip", "-n", space, "address", "add", host(rank) + "/24", "dev", kLink});
      run_command({"ip", "-n", space, "link", "set", kLink, "mtu", "1500", "up"});
      run_command({"ip", "-n", space, "link", "set", "lo", "up"});
    }
  } catch (...) {
    for (const char* rank : {"0", "1"}) quietly({"ip", "netns", "delete", prefix_ + rank});
    throw;
  }
}

Networks::~Networks() {
  for (const char* rank : {"0", "1"}) quietly({"ip", "netns", "delete", prefix_ + rank});
}

void Networks::shape() {
  if (shaped_) return;
  shaped_ = true;
  for (const char* rank : {"0", "1"})
    run_command({"tc", "-n", prefix_ + rank, "qdisc", "replace", "dev", kLink, "root", "tbf",
                 "rate", "1gbit", "burst", std::to_string(kBucket), "latency", "50ms"});
}

void Networks::unshape() {
  if (!shaped_) return;
  shaped_ = false;
  for (const char* rank : {"0", "1"})
    run_command({"tc", "-n", prefix_ + rank, "qdisc", "delete", "dev", kLink, "root"});
}

}  // namespace lockstep::bench::peers
