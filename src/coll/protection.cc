#include "coll/protection.h"

#include <fmt/format.h>

#include <utility>

#include "coll/meeting.h"
#include "transport/own_failure.h"

namespace lockstep::coll {
namespace {

using sys::Transfer;
using transport::Pair;
using transport::Plane;
using transport::TlsConnection;

/// Who has the key belongs to the job; whether he was told the same is for his Hello to say.
constexpr const char* kJob = "lockstep";

/// Whether a rank that is in that generation, 0 while it joins, lets in who calls so.
bool is_expected(const Pair& call, int rank, std::uint64_t current) {
  if (call.client == rank) return false;
  // Who wants to join knows no generation, and may have been told wrongly who is where: he is
  // let in to be told so.
  const bool control = call.plane == Plane::control;
  if (control && call.generation == 0) return true;
  if (call.server != rank || call.generation == 0) return false;
  // While this rank joins, a neighbour may know the generation a moment earlier. An earlier
  // generation is that of a process that was stopped while the others began anew: it is let in to
  // be told so.
  return current == 0 ? control : call.generation <= current;
}

}  // namespace

ProtectedConnection::ProtectedConnection(std::unique_ptr<TlsConnection> tls, After data_after,
                                         bool is_data)
    : tls_(std::move(tls)), data_after_(data_after), is_data_(is_data) {}

ProtectedConnection::~ProtectedConnection() = default;

sys::Connection& ProtectedConnection::current() const noexcept {
  if (plain_) return *plain_;
  return *tls_;
}

bool ProtectedConnection::established() noexcept {
  if (established_) return true;
  const TlsConnection::State state = tls_->handshake();
  if (state == TlsConnection::State::pending) return false;
  if (state == TlsConnection::State::failed || out_of_memory_) return true;
  try {
    local_host_ = tls_->underlying().local_host();
    if (const auto pair = Pair::parse(tls_->identity())) {
      client_ = pair->client;
      generation_ = pair->generation;
      is_data_ = pair->plane == Plane::data;
    }
    if (is_data_ && data_after_ == After::plain) plain_ = tls_->leave_tls();
    established_ = true;
  } catch (...) {
    out_of_memory_ = true;
  }
  return true;
}

Transfer ProtectedConnection::read(std::span<std::byte> into) noexcept {
  if (!established()) return {};
  return out_of_memory_ ? Transfer{0, Transfer::State::broken} : current().read(into);
}

Transfer ProtectedConnection::write(std::span<const std::byte> from) noexcept {
  if (!established()) return {};
  return out_of_memory_ ? Transfer{0, Transfer::State::broken} : current().write(from);
}

Transfer ProtectedConnection::write_both(std::span<const std::byte> first,
                                         std::span<const std::byte> second) noexcept {
  if (!established()) return {};
  return out_of_memory_ ? Transfer{0, Transfer::State::broken}
                        : current().write_both(first, second);
}

void ProtectedConnection::shutdown_write() noexcept { current().shutdown_write(); }
Status ProtectedConnection::error() const {
  return out_of_memory_ ? transport::out_of_memory() : current().error();
}
std::string ProtectedConnection::peer() const { return current().peer(); }
sys::Connection& ProtectedConnection::underlying() noexcept { return current().underlying(); }

Protection::Protection(const transport::JobKey& key, int rank,
                       ProtectedConnection::After data_after)
    : key_(key),
      rank_(rank),
      data_after_(data_after),
      generation_(std::make_shared<std::atomic<std::uint64_t>>(0)),
      server_([key = key_, own = rank_, current = generation_](
                  std::string_view identity) -> std::optional<transport::PairKey> {
        const auto pair = Pair::parse(identity);
        if (!pair || pair->job != kJob || !is_expected(*pair, own, current->load())) {
          return std::nullopt;
        }
        return transport::derive(key, *pair);
      }) {}

std::unique_ptr<sys::Connection> Protection::call(std::unique_ptr<sys::Connection> inner,
                                                  int server, Plane plane) const {
  const Pair pair{.job = kJob,
                  .generation = generation_->load(),
                  .client = rank_,
                  .server = server,
                  .plane = plane};
  return std::make_unique<ProtectedConnection>(
      client_.connect(std::move(inner), pair.identity(), transport::derive(key_, pair)),
      data_after_, plane == Plane::data);
}

std::unique_ptr<sys::Connection> Protection::answer(std::unique_ptr<sys::Connection> inner) const {
  return std::make_unique<ProtectedConnection>(server_.accept(std::move(inner)), data_after_,
                                               false);
}

std::string unanswered(sys::Connection& call) {
  if (call.is_open()) return {};
  if (call.underlying().is_open()) {
    return fmt::format("{} has taken the call and does not answer the handshake", call.peer());
  }
  if (is_unix(call.peer())) {
    return fmt::format("the call to {} waits in its queue: it may be stopped", call.peer());
  }
  return fmt::format(
      "the call to {} is not answered at all (SYN unanswered): its host is down, or a firewall "
      "drops it",
      call.peer());
}

std::unique_ptr<sys::Connection> protected_call(sys::Network& network, const Protection* protection,
                                                const std::string& address, int rank, Plane plane) {
  std::unique_ptr<sys::Connection> connection;
  try {
    connection = network.connect(address);
  } catch (const SystemError& error) {
    if (error.code() != Code::deadline_exceeded) throw;
    return nullptr;
  }
  if (protection == nullptr || is_unix(address)) return connection;
  return protection->call(std::move(connection), rank, plane);
}

}  // namespace lockstep::coll
