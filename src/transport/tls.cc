#include "transport/tls.h"

#include <fmt/format.h>
#include <openssl/err.h>
#include <openssl/ssl.h>

#include <algorithm>
#include <cassert>
#include <new>

#include "lockstep/error.h"
#include "transport/openssl_memory.h"
#include "transport/tls_callbacks.h"

namespace lockstep::transport {
namespace {

using sys::Transfer;

constexpr std::size_t kRecord = SSL3_RT_MAX_PLAIN_LENGTH;
/// Moved in one call at most: a pump has other connections too.
constexpr std::size_t kBurst = std::size_t{1} << 20;
/// One system call then fetches several records.
constexpr std::size_t kReadAhead = std::size_t{1} << 16;
/// Records in a row without data for the caller; ours send one for every key.
constexpr int kMaxIdleRecords = 64;

/// Stands for the caller's bytes when a sealed record is sent on: they are not looked at again.
constexpr std::array<std::byte, kRecord> kAlreadySealed{};

/// Text of an unauthenticated peer for a quotation in a log. Unlike printable() it replaces quotes
/// and backslashes, too, so that the peer cannot end the quotation, and the text does not grow.
std::string mask_unprintable(std::string_view text) {
  std::string out;
  for (const char c : text) out += c >= ' ' && c <= '~' && c != '"' && c != '\\' ? c : '?';
  return out;
}

/// Whether a handshake failed because the two sides have different keys, as far as OpenSSL tells:
/// here, or there by an alert.
bool tells_wrong_key(unsigned long error) {
  switch (ERR_GET_REASON(error)) {
    case SSL_R_BINDER_DOES_NOT_VERIFY:
    case SSL_R_DIGEST_CHECK_FAILED:
    case SSL_R_DECRYPTION_FAILED_OR_BAD_RECORD_MAC:
    case SSL_AD_REASON_OFFSET + SSL_AD_DECRYPT_ERROR:
    case SSL_AD_REASON_OFFSET + SSL_AD_ILLEGAL_PARAMETER:
    case SSL_AD_REASON_OFFSET + SSL_AD_BAD_RECORD_MAC:
    case SSL_AD_REASON_OFFSET + SSL_AD_UNKNOWN_PSK_IDENTITY:
      return true;
    default:
      return false;
  }
}

}  // namespace

TlsConnection::TlsConnection(std::unique_ptr<sys::Connection> inner, const TlsOptions& options)
    : inner_(std::move(inner)), records_per_key_(options.records_per_key) {}

void TlsConnection::start(tls::Ssl ssl) {
  BIO* bio = tls::Callbacks::make_bio(*this);
  SSL_set_bio(ssl.get(), bio, bio);  // takes it over
  if (SSL_set_app_data(ssl.get(), this) != 1) throw std::bad_alloc();
  ssl_ = std::move(ssl);
}

TlsConnection::~TlsConnection() {
  if (state_ != State::done || sealed_ > 0 || goodbye_ == Goodbye::said) return;
  goodbye_ = Goodbye::asked;
  say_goodbye();
}

bool TlsConnection::wants_read() const noexcept {
  return state_ == State::pending && blocked_ != Blocked::writing;
}

bool TlsConnection::wants_write() const noexcept {
  if (state_ == State::pending) return blocked_ == Blocked::writing;
  return state_ == State::done && !deaf_ && (stuck_ || goodbye_ == Goodbye::asked);
}

std::string_view TlsConnection::identity() const noexcept {
  return state_ == State::done ? std::string_view(identity_) : std::string_view();
}

bool TlsConnection::pending() const noexcept {
  return state_ == State::done && more_ && SSL_has_pending(ssl_.get()) == 1;
}

std::string TlsConnection::cipher() const {
  return state_ == State::done ? SSL_get_cipher_name(ssl_.get()) : "";
}

std::string TlsConnection::peer() const { return inner_ ? inner_->peer() : "nobody"; }

sys::Connection& TlsConnection::underlying() noexcept {
  return inner_ ? inner_->underlying() : *this;
}

int TlsConnection::take(std::span<std::byte> into) noexcept {
  // What was heard before there was an SSL object comes first.
  if (ssl_ && !greeting_.empty()) {
    const std::span<const std::byte> left = std::span(greeting_).subspan(reread_);
    const std::size_t size = std::min(into.size(), left.size());
    std::copy_n(left.begin(), size, into.begin());
    reread_ += size;
    if (reread_ == greeting_.size()) forget_greeting();
    return static_cast<int>(size);
  }
  if (state_ == State::pending) {
    if (taken_ == kMaxGreeting) fail(Fault::no_key);
    into = into.first(std::min(into.size(), kMaxGreeting - taken_));
  }
  if (fault_ != Fault::none) return -1;
  const auto [bytes, state] = inner_->read(into);
  if (bytes > 0) {
    if (state_ == State::pending) taken_ += bytes;
    return static_cast<int>(bytes);
  }
  if (state == Transfer::State::open) {
    blocked_ = Blocked::reading;
  } else if (state == Transfer::State::broken) {
    fail(Fault::inner);
  } else {
    fail(state_ == State::pending ? Fault::hung_up : Fault::truncated);
  }
  return -1;
}

int TlsConnection::give(std::span<const std::byte> from) noexcept {
  // OpenSSL fails for a reason of its own, and this is its alert. It may be sealed with a key that is
  // half made: the peer would take it for tampering. That this end hangs up says enough.
  if (is_openssls_own(ERR_peek_error())) return static_cast<int>(from.size());
  if (!give_held()) return -1;
  const auto [bytes, state] = inner_->write(from);
  if (state != Transfer::State::open) {
    deaf_ = true;
    return -1;
  }
  spoke_ = spoke_ || bytes > 0;
  const std::span<const std::byte> rest = from.subspan(bytes);
  const bool changing_keys = state_ == State::done && SSL_in_init(ssl_.get()) != 0;
  if (changing_keys && rest.size() <= held_.size()) {
    std::copy(rest.begin(), rest.end(), held_.begin());
    held_size_ = rest.size();
    return static_cast<int>(from.size());
  }
  if (bytes > 0) return static_cast<int>(bytes);
  blocked_ = Blocked::writing;
  return -1;
}

bool TlsConnection::give_held() noexcept {
  while (held_size_ > 0) {
    const auto [bytes, state] = inner_->write(std::span(held_).first(held_size_));
    if (state != Transfer::State::open) deaf_ = true;
    if (state == Transfer::State::open && bytes == 0) blocked_ = Blocked::writing;
    if (bytes == 0) return false;
    std::copy(held_.begin() + static_cast<std::ptrdiff_t>(bytes), held_.end(), held_.begin());
    held_size_ -= bytes;
  }
  return true;
}

TlsConnection::State TlsConnection::handshake() noexcept {
  if (state_ != State::pending) return state_;
  ERR_clear_error();
  blocked_ = Blocked::no;
  if (ssl_ || hear()) {
    const int result = SSL_do_handshake(ssl_.get());
    if (result == 1) {
      finish_handshake();
    } else {
      judge(result);
      if (deaf_) fail(Fault::inner);
    }
  }
  if (state_ == State::failed) {  // the buffers are worth nothing any more
    ssl_.reset();
    forget_greeting();
    key_.reset();
  }
  return state_;
}

void TlsConnection::finish_handshake() noexcept {
  // A handshake without the key is refused on the way already; this is the last lock on that door.
  if (SSL_session_reused(ssl_.get()) != 1) return fail(Fault::wrong_key);
  state_ = State::done;
  // Not before: leave_tls() needs a socket of which nothing was read ahead, and a stranger is not
  // worth a large buffer.
  SSL_set_read_ahead(ssl_.get(), 1);
  SSL_set_default_read_buffer_len(ssl_.get(), kReadAhead);
  // Made anew, in the new size, at the first read.
  (void)SSL_free_buffers(ssl_.get());
}

void TlsConnection::fail(Fault fault) noexcept {
  if (fault_ != Fault::none) return;
  fault_ = fault;
  if (state_ == State::pending) state_ = State::failed;
}

void TlsConnection::judge(int result) noexcept {
  if (fault_ != Fault::none) return;  // known at its source
  switch (SSL_get_error(ssl_.get(), result)) {
    case SSL_ERROR_WANT_READ:
    case SSL_ERROR_WANT_WRITE:
      return;  // blocked_ tells
    case SSL_ERROR_ZERO_RETURN:
      closed_ = true;
      return;
    case SSL_ERROR_SSL:
      detail_ = ERR_peek_error();
      if (openssl_lacked_memory() || is_openssls_own(detail_)) return fail(Fault::no_memory);
      if (ERR_GET_REASON(detail_) == SSL_AD_REASON_OFFSET + SSL_AD_INTERNAL_ERROR) {
        return fail(Fault::gave_up);
      }
      if (state_ == State::done) return fail(Fault::altered);
      return fail(tells_wrong_key(detail_) ? Fault::wrong_key : Fault::no_key);
    default:
      if (!deaf_) fail_inside();
  }
}

void TlsConnection::fail_inside() noexcept {
  detail_ = ERR_peek_error();
  fail(openssl_lacked_memory() || is_openssls_own(detail_) ? Fault::no_memory : Fault::internal);
}

bool TlsConnection::established() noexcept {
  if (handshake() != State::done) return false;
  if (goodbye_ == Goodbye::asked) say_goodbye();
  return true;
}

bool TlsConnection::writable() noexcept {
  if (fault_ != Fault::none || deaf_) return false;
  SSL* ssl = ssl_.get();
  ERR_clear_error();
  blocked_ = Blocked::no;
  if (stuck_) {
    std::size_t sent = 0;
    if (SSL_write_ex(ssl, kAlreadySealed.data(), sealed_, &sent) != 1) {
      judge(0);
      return false;
    }
    assert(sent == sealed_);
    stuck_ = false;
  }
  // A peer that asks for changes faster than it takes the answers. While one is half sent no data
  // may be sealed: it would not be known whether it was.
  if (SSL_in_init(ssl) != 0) {
    const int result = SSL_do_handshake(ssl);
    if (result != 1) {
      judge(result);
      return false;
    }
  }
  return records_ < records_per_key_ || change_keys();
}

bool TlsConnection::change_keys() noexcept {
  if (!give_held()) return false;
  records_ = 0;
  const bool changed = SSL_key_update(ssl_.get(), SSL_KEY_UPDATE_NOT_REQUESTED) == 1 &&
                       SSL_do_handshake(ssl_.get()) == 1;
  if (!changed && !deaf_) fail_inside();
  return changed;
}

Transfer TlsConnection::read(std::span<std::byte> into) noexcept {
  if (into.empty()) return {};
  std::size_t moved = 0;
  if (established()) {
    used_ = true;
    const std::size_t most = std::min(into.size(), kBurst);
    int idle = 0;
    while (moved < most && fault_ == Fault::none && !closed_) {
      ERR_clear_error();
      blocked_ = Blocked::no;
      std::size_t got = 0;
      if (SSL_read_ex(ssl_.get(), into.data() + moved, most - moved, &got) == 1) {
        moved += got;
        idle = 0;
        continue;
      }
      judge(0);
      if (blocked_ != Blocked::no) break;
      // Neither data nor blocked: a change of keys, and more may be here already.
      if (++idle > kMaxIdleRecords) fail(Fault::altered);
    }
    more_ = moved == most;
  }
  if (moved > 0) return {moved, Transfer::State::open};
  if (fault_ != Fault::none || (closed_ && deaf_)) return {0, Transfer::State::broken};
  return {0, closed_ ? Transfer::State::closed : Transfer::State::open};
}

Transfer TlsConnection::write(std::span<const std::byte> from) noexcept {
  std::size_t moved = 0;
  if (established() && !from.empty()) {
    used_ = true;
    if (goodbye_ != Goodbye::none) deaf_ = true;
    const std::size_t most = std::min(from.size(), kBurst);
    while (moved < most && writable()) {
      if (sealed_ > 0) {
        const std::size_t known = std::min(sealed_, most - moved);
        sealed_ -= known;
        moved += known;
        continue;
      }
      const std::size_t piece = std::min(most - moved, kRecord);
      std::size_t sent = 0;
      ++records_;
      if (SSL_write_ex(ssl_.get(), from.data() + moved, piece, &sent) == 1) {
        moved += sent;
        continue;
      }
      judge(0);
      stuck_ = blocked_ == Blocked::writing;
      if (stuck_) sealed_ = piece;
      break;
    }
  }
  if (moved > 0) return {moved, Transfer::State::open};
  return {0, fault_ != Fault::none || deaf_ ? Transfer::State::broken : Transfer::State::open};
}

void TlsConnection::shutdown_write() noexcept {
  if (goodbye_ != Goodbye::none || state_ == State::failed) return;
  goodbye_ = Goodbye::asked;
  (void)established();
}

void TlsConnection::say_goodbye() noexcept {
  if (!writable()) return;
  const int result = SSL_shutdown(ssl_.get());
  if (result < 0) return judge(result);
  goodbye_ = Goodbye::said;
  inner_->shutdown_write();
}

std::unique_ptr<sys::Connection> TlsConnection::leave_tls() {
  if (state_ != State::done || used_ || fault_ != Fault::none || goodbye_ != Goodbye::none) {
    throw InvalidUsage(fmt::format("the connection to {} can leave TLS only between the end of the "
                                   "handshake and the first read or write",
                                   peer()),
                       Code::failed_precondition);
  }
  assert(SSL_has_pending(ssl_.get()) == 0);
  state_ = State::failed;
  fault_ = Fault::left;
  ssl_.reset();
  return std::move(inner_);
}

Status TlsConnection::wrong_key() const {
  constexpr const char* kAdvice = "give all processes of the job the same key";
  const std::string who = mask_unprintable(identity_);
  return {ErrorKind::config_error, Code::unauthenticated,
          is_server() ? fmt::format("wrong key: the peer at {}, which calls itself \"{}\", has "
                                    "another key or is not of this job; {}",
                                    peer(), who, kAdvice)
                      : fmt::format("wrong key: the peer at {} does not have the key of \"{}\", or "
                                    "does not know it; {}",
                                    peer(), who, kAdvice)};
}

Status TlsConnection::error() const {
  const char* reason = detail_ != 0 ? ERR_reason_error_string(detail_) : nullptr;
  const std::string detail = reason != nullptr ? fmt::format(" ({})", reason) : std::string();
  switch (fault_) {
    case Fault::none:
      if (!deaf_) return {};
      if (goodbye_ != Goodbye::none && inner_->error().ok()) {
        return {ErrorKind::invalid_usage, Code::failed_precondition,
                fmt::format("written to {} after shutdown_write()", peer())};
      }
      return inner_->error();
    case Fault::inner: {
      Status broke = inner_->error();
      // A server without a key closes as soon as it sees what it cannot read.
      if (state_ != State::failed || !spoke_ || is_server() || broke.ok()) return broke;
      return {broke.kind(), broke.code(),
              broke.message() +
                  "; or it was started without a key, since it did not answer the "
                  "handshake"};
    }
    case Fault::wrong_key:
      return wrong_key();
    case Fault::repeated:
      return {ErrorKind::config_error, Code::unauthenticated,
              fmt::format("the peer at {} repeated a greeting of \"{}\" that was used before: "
                          "somebody has recorded it, and has not got in; look who can read this "
                          "network",
                          peer(), mask_unprintable(identity_))};
    case Fault::no_key:
      return {ErrorKind::config_error, Code::unauthenticated,
              fmt::format("the peer at {} did not identify itself{}: it was started without a key, "
                          "or it is another program; give all processes of the job the same key",
                          peer(), detail)};
    case Fault::hung_up:
      return {ErrorKind::peer_lost, Code::unavailable,
              fmt::format("the peer at {} hung up during the handshake: it died, or it was started "
                          "without a key",
                          peer())};
    case Fault::truncated:
      return {ErrorKind::peer_lost, Code::unavailable,
              fmt::format("the stream from {} was cut off: it ended without a goodbye", peer())};
    case Fault::altered:
      return {ErrorKind::data_error, Code::data_loss,
              fmt::format("the stream from {} was altered on its way{}", peer(), detail)};
    case Fault::no_memory:
      return {ErrorKind::system_error, Code::resource_exhausted,
              fmt::format("OpenSSL is out of memory for TLS with {}, or cannot go on for another "
                          "reason of its own{}",
                          peer(), detail)};
    case Fault::gave_up:
      return {ErrorKind::peer_lost, Code::unavailable,
              fmt::format("the peer at {} gave up: it is out of memory, or has failed in another "
                          "way; see its log",
                          peer())};
    case Fault::left:
      return {ErrorKind::invalid_usage, Code::failed_precondition,
              "this connection has left TLS: use the one that leave_tls() gave"};
    case Fault::internal:
      break;
  }
  return {ErrorKind::internal, Code::internal,
          fmt::format("TLS to {} failed in a way that is a bug of lockstep{}", peer(), detail)};
}

}  // namespace lockstep::transport
