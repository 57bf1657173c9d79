// A server's side: whom it lets speak to OpenSSL at all.
#include <openssl/ssl.h>

#include <cassert>
#include <new>

#include "lockstep/error.h"
#include "transport/client_greeting.h"
#include "transport/tls.h"
#include "transport/tls_callbacks.h"
#include "transport/used_binders.h"

namespace lockstep::transport {
namespace tls {

/// What the connections of a server share; it may be gone before them.
struct ServerSide {
  Context context;
  KeyLookup lookup;
  UsedBinders used;
};

}  // namespace tls

namespace {

/// What OpenSSL answers to a binder that does not verify, and to a fault of its own.
constexpr std::byte kWrongKeyAlert{SSL_AD_ILLEGAL_PARAMETER};
constexpr std::byte kInternalAlert{SSL_AD_INTERNAL_ERROR};

}  // namespace

// A server's memory is not for strangers. OpenSSL would take 72 KiB for somebody who says nothing:
// it is not asked before the caller has shown that he knows the key.
bool TlsConnection::hear() noexcept {
  try {
    std::array<std::byte, kMaxGreeting> piece;
    for (;;) {
      const auto missing = ClientGreeting::missing(greeting_);
      if (!missing) {
        const bool is_alert = greeting_.front() == std::byte{SSL3_RT_ALERT};
        fail(is_alert ? Fault::gave_up : Fault::no_key);
        return false;
      }
      if (*missing == 0) break;
      const int got = take(std::span(piece).first(*missing));
      if (got <= 0) return false;
      greeting_.reserve(kMaxGreeting);
      greeting_.insert(greeting_.end(), piece.begin(), piece.begin() + got);
    }
    believe();
  } catch (const std::bad_alloc&) {
    refuse(Fault::no_memory, kInternalAlert);
  } catch (const SystemError&) {  // make_ssl() and make_bio() say so
    refuse(Fault::no_memory, kInternalAlert);
  } catch (...) {
    refuse(Fault::internal, kInternalAlert);
  }
  return state_ == State::pending;
}

void TlsConnection::believe() {
  const auto greeting = ClientGreeting::parse(greeting_);
  if (!greeting) return fail(Fault::no_key);
  const bool is_short = greeting->identity().size() <= kMaxIdentity;
  std::optional<PairKey> key;
  if (is_short) key = server_->lookup(greeting->identity());
  // A stranger costs the time of a wrong key, and gets its answer.
  constexpr std::array<std::byte, PairKey::kBytes> kNobodys{};
  const bool proven = greeting->proves(key ? key->bytes() : std::span(kNobodys));
  if (is_short) identity_ = greeting->identity();
  if (!proven || !key) return refuse(Fault::wrong_key, kWrongKeyAlert);
  if (!server_->used.enter(greeting->binder())) return refuse(Fault::repeated, kWrongKeyAlert);
  start(tls::make_ssl(server_->context));
  SSL_set_accept_state(ssl_.get());
  key_ = std::move(key);
}

void TlsConnection::refuse(Fault fault, std::byte alert) noexcept {
  const std::array<std::byte, 7> record = {
      std::byte{SSL3_RT_ALERT}, std::byte{3}, std::byte{3}, std::byte{0}, std::byte{2},
      std::byte{SSL3_AL_FATAL}, alert};
  // A socket to which nothing was written yet takes it.
  std::span<const std::byte> left = record;
  while (!left.empty()) {
    const auto [bytes, state] = inner_->write(left);
    if (bytes == 0 || state != sys::Transfer::State::open) break;
    left = left.subspan(bytes);
  }
  fail(fault);
}

TlsServer::TlsServer(KeyLookup lookup, const TlsOptions& options)
    : side_(std::make_shared<tls::ServerSide>()), options_(options) {
  side_->context = tls::make_context(TLS_server_method());
  side_->lookup = std::move(lookup);
  SSL_CTX_set_psk_find_session_callback(side_->context.get(), tls::Callbacks::find_key);
}

std::unique_ptr<TlsConnection> TlsServer::accept(std::unique_ptr<sys::Connection> inner) const {
  assert(inner);
  std::unique_ptr<TlsConnection> made(new TlsConnection(std::move(inner), options_));
  made->blocked_ = TlsConnection::Blocked::reading;
  made->server_ = side_;
  return made;
}

}  // namespace lockstep::transport
