#include "tests/sim_cluster/traffic.h"

#include <algorithm>
#include <utility>

#include "wire/frame.h"

namespace lockstep::simulated {
namespace {

/// Counts the frames of one direction of a connection.
class FrameCounter {
 public:
  explicit FrameCounter(std::uint64_t& frames) : frames_(frames) {}
  void take(std::span<const std::byte> bytes) {
    using Event = wire::FrameReader::Event;
    while (!bytes.empty() && !unreadable_) {
      const std::size_t data = std::min<std::size_t>(data_left_, bytes.size());
      bytes = bytes.subspan(data);
      data_left_ -= static_cast<std::uint32_t>(data);
      if (bytes.empty()) return;
      const Event event = reader_.next(bytes);
      unreadable_ = event == Event::bad;
      if (event == Event::more || unreadable_) return;
      ++frames_;
      if (event == Event::data) data_left_ = reader_.header().length;
    }
  }

 private:
  std::uint64_t& frames_;
  wire::FrameReader reader_;
  std::uint32_t data_left_ = 0;
  bool unreadable_ = false;  // TLS: only bytes are counted
};

class CountedConnection final : public sys::Connection {
 public:
  CountedConnection(std::unique_ptr<sys::Connection> inner, Traffic& traffic)
      : inner_(std::move(inner)),
        traffic_(traffic),
        out_(traffic.frames_out),
        in_(traffic.frames_in) {
    ++traffic_.connections;
  }
  ~CountedConnection() override { --traffic_.connections; }
  CountedConnection(const CountedConnection&) = delete;
  CountedConnection& operator=(const CountedConnection&) = delete;

  sys::Transfer read(std::span<std::byte> into) noexcept override {
    const sys::Transfer moved = inner_->read(into);
    traffic_.bytes_in += moved.bytes;
    in_.take(into.first(moved.bytes));
    return moved;
  }
  sys::Transfer write(std::span<const std::byte> from) noexcept override {
    const sys::Transfer moved = inner_->write(from);
    traffic_.bytes_out += moved.bytes;
    out_.take(from.first(moved.bytes));
    return moved;
  }
  void shutdown_write() noexcept override { inner_->shutdown_write(); }
  [[nodiscard]] Status error() const override { return inner_->error(); }
  [[nodiscard]] std::string peer() const override { return inner_->peer(); }
  [[nodiscard]] bool is_open() const noexcept override { return inner_->is_open(); }
  [[nodiscard]] std::string local_host() const override { return inner_->local_host(); }
  [[nodiscard]] std::optional<sys::Delivery> delivery() const noexcept override {
    return inner_->delivery();
  }
  [[nodiscard]] sys::Connection& underlying() noexcept override { return inner_->underlying(); }

 private:
  std::unique_ptr<sys::Connection> inner_;
  Traffic& traffic_;
  FrameCounter out_;
  FrameCounter in_;
};

class CountedListener final : public sys::Listener {
 public:
  CountedListener(std::unique_ptr<sys::Listener> inner, Traffic& traffic)
      : inner_(std::move(inner)), traffic_(traffic) {}
  std::unique_ptr<sys::Connection> accept() override {
    auto connection = inner_->accept();
    if (!connection) return nullptr;
    return std::make_unique<CountedConnection>(std::move(connection), traffic_);
  }
  [[nodiscard]] std::string address() const override { return inner_->address(); }
  [[nodiscard]] sys::Listener& inner() noexcept { return *inner_; }

 private:
  std::unique_ptr<sys::Listener> inner_;
  Traffic& traffic_;
};

/// The network's own poller knows its own listeners only.
class UnwrappingPoller final : public sys::Poller {
 public:
  explicit UnwrappingPoller(std::unique_ptr<sys::Poller> inner) : inner_(std::move(inner)) {}
  void watch(sys::Connection& connection, Interest interest) override {
    inner_->watch(connection, interest);
  }
  void watch(sys::Listener& listener) override { inner_->watch(unwrapped(listener)); }
  void forget(sys::Connection& connection) noexcept override { inner_->forget(connection); }
  void forget(sys::Listener& listener) noexcept override { inner_->forget(unwrapped(listener)); }
  bool wait(Deadline deadline) override { return inner_->wait(deadline); }
  [[nodiscard]] std::span<sys::Connection* const> ready() const noexcept override {
    return inner_->ready();
  }
  void wake() noexcept override { inner_->wake(); }

 private:
  static sys::Listener& unwrapped(sys::Listener& listener) {
    return dynamic_cast<CountedListener&>(listener).inner();
  }
  std::unique_ptr<sys::Poller> inner_;
};

}  // namespace

std::unique_ptr<sys::Listener> CountedNetwork::listen(const std::string& address) {
  return std::make_unique<CountedListener>(inner_.listen(address), traffic_);
}

std::unique_ptr<sys::Connection> CountedNetwork::connect(const std::string& address) {
  return std::make_unique<CountedConnection>(inner_.connect(address), traffic_);
}

std::unique_ptr<sys::Poller> CountedNetwork::poller() {
  return std::make_unique<UnwrappingPoller>(inner_.poller());
}

}  // namespace lockstep::simulated
