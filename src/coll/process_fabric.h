// ProcessFabric: connects ranks that are processes. Groups within one host get links through shared
// memory, others links of byte streams: rings in shared memory between ranks of one host, sockets
// between hosts.
#pragma once

#include <memory>
#include <vector>

#include "coll/presence.h"
#include "transport/fabric.h"
#include "transport/shm.h"

namespace lockstep::coll {

class ProcessFabric final : public transport::Fabric {
 public:
  /// `host` is null for a rank that is alone on its host.
  ProcessFabric(std::shared_ptr<Presence> presence, std::shared_ptr<transport::ShmHost> host)
      : presence_(std::move(presence)), host_(std::move(host)) {}

  [[nodiscard]] std::uint64_t generation() const noexcept override {
    return presence_->roster().generation;
  }
  std::unique_ptr<transport::Link> link(std::uint64_t id, const std::vector<int>& members,
                                        int rank) override;
  [[nodiscard]] std::string transport(const std::vector<int>& members) const override;
  [[nodiscard]] std::shared_ptr<std::byte> allocate(std::size_t bytes) override;
  [[nodiscard]] bool failed() const noexcept override { return presence_->failure().raised(); }
  [[nodiscard]] Status failure() const override { return presence_->failure().cause(); }
  void fail(const Status& why) noexcept override { presence_->failure().report(why); }
  void leave(int rank) noexcept override;

 private:
  [[nodiscard]] bool on_one_host(const std::vector<int>& members) const;

  std::shared_ptr<Presence> presence_;
  std::shared_ptr<transport::ShmHost> host_;
};

}  // namespace lockstep::coll
