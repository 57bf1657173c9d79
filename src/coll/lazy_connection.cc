#include "coll/lazy_connection.h"

#include <fmt/format.h>

#include <chrono>

#include "transport/own_failure.h"
#include "wire/abort.h"

namespace lockstep::coll {
namespace {

using sys::Transfer;

constexpr Duration kTryAgain = std::chrono::milliseconds(20);
/// Whether the peer has called.
constexpr Duration kLookAgain = std::chrono::microseconds(100);
/// A rank that is alive answers; one that is not is found by the control plane before.
/// Where strangers crowd at its door, it may take seconds to get in.
constexpr auto kPatience = std::chrono::seconds(20);

}  // namespace

Transfer LazyConnection::read(std::span<std::byte> into) noexcept {
  return opened() ? inner_->read(into) : Transfer{};
}

Transfer LazyConnection::write(std::span<const std::byte> from) noexcept {
  return opened() ? inner_->write(from) : Transfer{};
}

Transfer LazyConnection::write_both(std::span<const std::byte> first,
                                    std::span<const std::byte> second) noexcept {
  return opened() ? inner_->write_both(first, second) : Transfer{};
}

void LazyConnection::shutdown_write() noexcept {
  if (inner_) inner_->shutdown_write();
}

Status LazyConnection::error() const { return inner_ ? inner_->error() : Status(); }

std::string LazyConnection::peer() const {
  return inner_ ? inner_->peer() : std::string(presence_->roster().at(rank_).address_text());
}

bool LazyConnection::opened() noexcept {
  if (open_) return true;
  try {
    open();
  } catch (...) {
    Status why = transport::current_failure();
    if (why.culprits().empty()) why = transport::own_failure(why, presence_->roster().rank);
    presence_->failure().report(why);
  }
  return open_;
}

std::unique_ptr<sys::Connection> LazyConnection::called() {
  try {
    return presence_->data_connection(group_, rank_);
  } catch (const SystemError& error) {
    if (error.code() == Code::resource_exhausted) throw;  // here, and it has nothing to do with it
    not_reached({error.kind(), error.code(), error.what()});
    return nullptr;
  }
}

void LazyConnection::open() {
  const bool calls = rank_ < presence_->roster().rank;
  if (!inner_) {
    const Time now = MonotonicClock().now();
    if (now < next_try_) return;
    next_try_ = now + (calls ? kTryAgain : kLookAgain);
    if (first_try_ == Time{}) first_try_ = now;
    inner_ = called();
    if (!inner_) return;
    called_ = now;
    if (calls) {
      wire::Hello hello = presence_->roster().own();
      hello.purpose = wire::Purpose::data;
      hello.generation = presence_->roster().generation;
      hello.group = group_;
      greeting_ = std::make_unique<Greeting>(*inner_);
      greeting_->send(hello);
    }
  }
  if (!greeting_) return finish();
  if (greeting_->flush() && greeting_->next()) {
    if (greeting_->type() == wire::FrameType::accepted) return finish();
    refused();
  }
  Status why = inner_->error();
  if (why.ok() && greeting_->over()) {
    why = {ErrorKind::system_error, Code::unavailable, greeting_->how()};
  }
  if (why.ok() && !inner_->underlying().is_open() &&
      MonotonicClock().now() > called_ + kUnanswered) {
    why = {ErrorKind::system_error, Code::unavailable, "the call is not answered"};
  }
  if (why.ok()) return;
  if (transport::is_own_shortage(why)) raise(why);
  greeting_.reset();
  inner_.reset();
  not_reached(why);
}

void LazyConnection::refused() const {
  wire::Abort abort;
  if (greeting_->type() != wire::FrameType::abort) {
    throw DataError(fmt::format("rank {} answered a data connection with a frame of type {}", rank_,
                                static_cast<int>(greeting_->type())));
  }
  raise_if_error(wire::decode(greeting_->payload(), presence_->roster().size(), abort));
  raise(abort.cause);
}

void LazyConnection::finish() {
  greeting_.reset();
  if (turn_) inner_ = turn_(std::move(inner_));
  open_ = true;
}

void LazyConnection::not_reached(const Status& why) {
  if (MonotonicClock().now() - first_try_ <= kPatience) return;
  throw PeerLost(
      fmt::format("rank {} cannot reach rank {} at {}: {}; it answers on its control connection, "
                  "so look for a firewall between the two",
                  presence_->roster().rank, rank_, presence_->roster().at(rank_).address_text(),
                  why.message()),
      Code::unavailable, {rank_});
}

}  // namespace lockstep::coll
