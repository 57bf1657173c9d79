#include "tests/sim_cluster/job_process.h"

#include <fmt/format.h>

#include <chrono>
#include <string>

namespace lockstep::simulated {
namespace {

/// A network that belongs to somebody else.
class BorrowedNetwork final : public sys::Network {
 public:
  explicit BorrowedNetwork(sys::Network& network) : network_(network) {}
  std::unique_ptr<sys::Listener> listen(const std::string& address) override {
    return network_.listen(address);
  }
  std::unique_ptr<sys::Connection> connect(const std::string& address) override {
    return network_.connect(address);
  }
  std::unique_ptr<sys::Poller> poller() override { return network_.poller(); }

 private:
  sys::Network& network_;
};

}  // namespace

std::string JobSpec::process(int rank) const {
  return addresses == Addresses::one_each ? host(rank) : fmt::format("{}/{}", host(0), rank);
}

coll::JoinOptions JobSpec::options(int rank) const {
  coll::JoinOptions options;
  options.rank = rank;
  options.timeout = std::chrono::seconds(8);
  for (int other = 0; other < ranks; ++other) {
    options.addresses.push_back(addresses == Addresses::one_each
                                    ? fmt::format("{}:4000", host(other))
                                    : fmt::format("{}:{}", host(0), 4000 + other));
  }
  options.insecure = key == Key::none;
  if (key == Key::given) {
    for (int i = 0; i < 4; ++i) options.key += "0123456789abcdef";
  }
  return options;
}

coll::JoiningProcess job_process(sys::Network& network, int rank,
                                 std::atomic<std::uint64_t>& generation) {
  const auto number = static_cast<std::uint32_t>(rank);
  return {.network = std::make_unique<BorrowedNetwork>(network),
          .pid = 1000 + number,
          .started = 1,
          .host = number + 1,
          .host_name = host(rank),
          .incarnation = number + 1,
          .generation = &generation};
}

}  // namespace lockstep::simulated
