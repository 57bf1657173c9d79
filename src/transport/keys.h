// Keys: what the processes of a job share, and what is made from it for each pair of them.
//
// A job has one JobKey of 32 random bytes. No connection uses it directly: each pair of ranks, in
// each generation and for each plane, has a PairKey of its own, derived from it with HKDF-SHA256.
// Who knows a PairKey learns nothing about the job's key or another pair's; a key of an earlier
// generation opens nothing in this one; and since client and server are named in it, a message sent
// back to its sender is no proof of anything. A rank that wants to join knows no generation yet and
// calls in generation 0: that key is the same as long as the job's is.
//
//   const JobKey job = JobKey::from_file("/run/user/7/job.key");
//   const Pair pair{.job = "train-17", .generation = 3, .client = 4, .server = 0, .plane =
//                   Plane::control};
//   TlsClient().connect(std::move(connection), pair.identity(), derive(job, pair));
//
// Keys wipe themselves, stay out of core files and are never printed: errors name the file or
// variable, not the content.
// Thread rule: values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "sys/secret_page.h"

namespace lockstep::transport {

/// 32 secret bytes. One type for each use, so that none is taken for the other.
template <class Use>
class Secret {
 public:
  static constexpr std::size_t kBytes = 32;

  explicit Secret(std::span<const std::byte, kBytes> bytes);

  [[nodiscard]] std::span<const std::byte, kBytes> bytes() const noexcept {
    return page_.bytes().template first<kBytes>();
  }
  /// In constant time.
  friend bool operator==(const Secret& a, const Secret& b) noexcept { return a.equals(b); }

 private:
  [[nodiscard]] bool equals(const Secret& other) const noexcept;

  sys::SecretPage page_;
};

class JobKey : public Secret<class JobKeyUse> {
 public:
  using Secret::Secret;

  /// 64 hex digits, or base64 of 32 bytes; white space at the ends does not count. `source` is
  /// what errors call it, e.g. the name of an environment variable. ConfigError otherwise.
  static JobKey from_text(std::string_view text, std::string_view source);
  /// The same in a file, or 32 raw bytes. The file must be private: see sys/private_file.h.
  static JobKey from_file(const std::string& path);
  /// From the system's random numbers.
  static JobKey random();

  /// 64 hex digits, to hand the key over to processes that this one starts.
  [[nodiscard]] std::string to_text() const;
};

class PairKey : public Secret<class PairKeyUse> {
 public:
  using Secret::Secret;
};

/// What a connection is for.
enum class Plane : std::uint8_t { control, data };

/// A connection of a job, by name.
struct Pair {
  std::string job;  // at most kMaxJob bytes
  std::uint64_t generation = 0;
  int client = 0;  // ranks
  int server = 0;
  Plane plane = Plane::control;

  static constexpr std::size_t kMaxJob = 128;

  /// All of it in clear, the way a client introduces itself. InvalidUsage if job is too long.
  [[nodiscard]] std::string identity() const;
  /// The pair of an identity, if it is one that identity() writes. Any text may be given.
  static std::optional<Pair> parse(std::string_view identity);
  friend bool operator==(const Pair&, const Pair&) = default;
};

/// HKDF-SHA256 of the job's key; the salt is the job's name, the rest of the pair is the info.
PairKey derive(const JobKey& key, const Pair& pair);

}  // namespace lockstep::transport
