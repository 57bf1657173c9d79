// Hello: the payload of the first frame on every connection: who calls, and what for. It is all
// that a listener reads before it knows whom it talks to, so it is small and of fixed size.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include "base/status.h"

namespace lockstep::wire {

/// Changes whenever ranks of the old and the new program could not understand each other.
inline constexpr std::uint32_t kProtocol = 6;

enum class Purpose : std::uint32_t {
  join = 1,     // to rank 0: take me in. Stays as the control connection
  control = 2,  // to a neighbour in the ring of ranks
  segment = 3,  // to the first rank of the host: hand over the shared memory
  data = 4,     // of `group`
  claim = 5,    // to rank 0: who has my rank? Another process listens where I should
};

/// Fixed size, no padding, little endian on the wire.
struct Hello {
  std::uint32_t protocol = kProtocol;
  Purpose purpose = Purpose::join;
  std::uint32_t library = 0;  // version of lockstep: major << 16 | minor << 8 | patch
  std::int32_t rank = 0;
  std::int32_t size = 0;
  std::int32_t replicas = 1;
  std::uint32_t pid = 0;
  std::uint32_t started = 0;      // the process, in seconds since 1970
  std::uint64_t cluster = 0;      // digest of the cluster's description
  std::uint64_t generation = 0;   // join, claim: the last one this process was in
  std::uint64_t incarnation = 0;  // random: tells a restarted process from its predecessor
  std::uint64_t host = 0;         // equal for ranks that can share memory
  std::uint64_t arithmetic = 0;   // digest of what the bits of results depend on
  std::uint64_t options = 0;      // digest of the options that must agree
  std::uint64_t group = 0;        // data
  std::array<char, 64> host_name{};
  std::array<char, 128> address{};  // where this rank listens

  [[nodiscard]] std::string_view host_name_text() const noexcept { return text(host_name); }
  [[nodiscard]] std::string_view address_text() const noexcept { return text(address); }
  void set_host_name(std::string_view name) noexcept { set(host_name, name); }
  void set_address(std::string_view where) noexcept { set(address, where); }

  friend bool operator==(const Hello&, const Hello&) = default;

 private:
  template <std::size_t N>
  static std::string_view text(const std::array<char, N>& field) noexcept {
    return {field.data(), strnlen(field.data(), N)};
  }
  template <std::size_t N>
  static void set(std::array<char, N>& field, std::string_view value) noexcept {
    field.fill('\0');
    std::memcpy(field.data(), value.data(), value.size() < N ? value.size() : N - 1);
  }
};
static_assert(sizeof(Hello) == 280 && std::is_trivially_copyable_v<Hello> &&
              std::has_unique_object_representations_v<Hello>);

std::array<std::byte, sizeof(Hello)> encode(const Hello& hello) noexcept;
/// DataError naming the field that is wrong: protocol, purpose, rank, size, replicas or text.
Status decode(std::span<const std::byte, sizeof(Hello)> bytes, Hello& hello);

/// "rank 2 (pid 4711 on node7)", for messages.
std::string describe(const Hello& hello);
/// "pid 4711 on node7, started 2026-11-18 17:44:18 UTC", to tell two processes of one rank apart.
std::string describe_process(const Hello& hello);
/// "0.9.1", of Hello::library.
std::string version_text(std::uint32_t library);

}  // namespace lockstep::wire
