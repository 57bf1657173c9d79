// Censor: a connection that swallows the abort frames written to it, whole. Everything else passes.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "sys/net.h"
#include "wire/frame.h"

namespace lockstep::simulated {

class Censor final : public sys::Connection {
 public:
  explicit Censor(std::unique_ptr<sys::Connection> inner) : inner_(std::move(inner)) {}

  sys::Transfer read(std::span<std::byte> into) noexcept override { return inner_->read(into); }
  sys::Transfer write(std::span<const std::byte> from) noexcept override {
    const std::size_t taken = from.size();
    while (!from.empty() && reader_.next(from) == wire::FrameReader::Event::frame) {
      if (reader_.header().type == wire::FrameType::abort) continue;
      std::array<std::byte, wire::kHeaderBytes> header;
      wire::encode(reader_.header(), header);
      passed_.insert(passed_.end(), header.begin(), header.end());
      passed_.insert(passed_.end(), reader_.payload().begin(), reader_.payload().end());
    }
    const auto [bytes, state] = inner_->write(passed_);
    passed_.erase(passed_.begin(), passed_.begin() + static_cast<std::ptrdiff_t>(bytes));
    return {taken, state};
  }
  void shutdown_write() noexcept override { inner_->shutdown_write(); }
  [[nodiscard]] Status error() const override { return inner_->error(); }
  [[nodiscard]] std::string peer() const override { return inner_->peer(); }

 private:
  std::unique_ptr<sys::Connection> inner_;
  wire::FrameReader reader_;
  std::vector<std::byte> passed_;
};

}  // namespace lockstep::simulated
