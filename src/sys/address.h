// Address: where a listener listens and a connection goes.
//
//   "10.0.0.7:4000"   "[2001:db8::7]:4000"   "node7:4000"     TCP
//   "unix:/run/lockstep/rank0"   "unix:@rank0"                a Unix socket: a path, or a name in
//                                                             the abstract namespace of the host
//
// Parsing looks at the text alone; nothing is resolved. A plain value, free of threads.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep::sys {

struct Address {
  enum class Kind : unsigned char { tcp, unix_socket };

  Kind kind = Kind::tcp;
  std::string host;        // tcp: a name or a numeric address, without brackets
  std::uint16_t port = 0;  // tcp: 0 lets the system choose when listening
  std::string path;        // unix_socket: a path, or "@name"

  /// Throws ConfigError that names the entry and the rule it breaks.
  static Address parse(std::string_view text);

  [[nodiscard]] std::string to_string() const;
  friend bool operator==(const Address&, const Address&) = default;
};

/// The longest path of a Unix socket, in bytes; an abstract name counts its '@'.
inline constexpr std::size_t kMaxUnixPath = 107;

}  // namespace lockstep::sys
