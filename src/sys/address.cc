#include "sys/address.h"

#include <arpa/inet.h>
#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "base/printable.h"
#include "lockstep/error.h"

namespace lockstep::sys {
namespace {

[[noreturn]] void reject(std::string_view text, std::string_view rule) {
  throw ConfigError(
      fmt::format("\"{}\" is not an address: {}; write host:port, [v6]:port or unix:path",
                  escape_controls(text), escape_controls(rule)));
}

bool is_space_or_control(char c) { return static_cast<unsigned char>(c) <= ' ' || c == 0x7F; }

bool is_v6(const std::string& host) {
  in6_addr ignored{};
  // A scope ("fe80::1%eth0") is not part of the number.
  return inet_pton(AF_INET6, host.substr(0, host.find('%')).c_str(), &ignored) == 1;
}

/// Letters, digits, '-', '_' and '.': what resolvers take, with the underscore of container names.
bool is_host_name(std::string_view host) {
  return std::all_of(host.begin(), host.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_' || c == '.';
  });
}

/// Four numbers with dots between are meant as IPv4 and must be right.
bool looks_like_v4(std::string_view host) {
  return std::all_of(host.begin(), host.end(),
                     [](char c) { return (c >= '0' && c <= '9') || c == '.'; });
}

std::uint16_t parse_port(std::string_view text, std::string_view port) {
  if (port.empty()) reject(text, "the port is missing after ':'");
  const bool digits =
      std::all_of(port.begin(), port.end(), [](char c) { return c >= '0' && c <= '9'; });
  if (!digits) reject(text, fmt::format("the port \"{}\" is not a number", port));
  std::uint32_t value = 0;
  const auto parsed = std::from_chars(port.data(), port.data() + port.size(), value);
  if (parsed.ec != std::errc() || value > 65535) {
    reject(text, fmt::format("the port {} is above 65535", port));
  }
  return static_cast<std::uint16_t>(value);
}

Address parse_unix(std::string_view text, std::string_view path) {
  if (path.empty() || path == "@") reject(text, "the path after \"unix:\" is empty");
  if (path.find('\0') != std::string_view::npos) reject(text, "the path contains a zero byte");
  if (path.size() > kMaxUnixPath) {
    reject(text, fmt::format("the path has {} bytes and a Unix socket takes at most {}",
                             path.size(), kMaxUnixPath));
  }
  return {.kind = Address::Kind::unix_socket, .host = {}, .port = 0, .path = std::string(path)};
}

}  // namespace

Address Address::parse(std::string_view text) {
  constexpr std::string_view unix_prefix = "unix:";
  if (text.empty()) reject(text, "it is empty");
  if (text.substr(0, unix_prefix.size()) == unix_prefix) {
    return parse_unix(text, text.substr(unix_prefix.size()));
  }
  if (std::any_of(text.begin(), text.end(), is_space_or_control)) {
    reject(text, "it contains a space or a control character");
  }
  if (const auto scheme = text.find("://"); scheme != std::string_view::npos) {
    reject(text, fmt::format("it is a URL; leave \"{}\" out", text.substr(0, scheme + 3)));
  }
  if (text.find('/') != std::string_view::npos) {
    reject(text, "it contains '/'; a path of a Unix socket starts with \"unix:\"");
  }

  if (text.front() == '[') {
    const auto bracket = text.find(']');
    if (bracket == std::string_view::npos) reject(text, "the ']' is missing");
    const std::string host(text.substr(1, bracket - 1));
    if (!is_v6(host)) reject(text, fmt::format("\"{}\" is not an IPv6 address", host));
    if (bracket + 1 == text.size()) reject(text, "the port is missing");
    if (text[bracket + 1] != ':') reject(text, "':' must follow the ']'");
    return {.kind = Kind::tcp,
            .host = host,
            .port = parse_port(text, text.substr(bracket + 2)),
            .path = {}};
  }

  const auto colon = text.find(':');
  if (colon == std::string_view::npos) reject(text, "the port is missing");
  if (text.find(':', colon + 1) != std::string_view::npos) {
    reject(text, "it has more than one ':'; an IPv6 address stands in brackets");
  }
  const std::string host(text.substr(0, colon));
  if (host.empty()) reject(text, "the host is missing; 0.0.0.0 or [::] listens on all");
  if (!is_host_name(host)) reject(text, fmt::format("\"{}\" is not a host name", host));
  in_addr ignored{};
  if (looks_like_v4(host) && inet_pton(AF_INET, host.c_str(), &ignored) != 1) {
    reject(text, fmt::format("\"{}\" is not an IPv4 address", host));
  }
  return {.kind = Kind::tcp,
          .host = host,
          .port = parse_port(text, text.substr(colon + 1)),
          .path = {}};
}

std::string Address::to_string() const {
  if (kind == Kind::unix_socket) return fmt::format("unix:{}", path);
  if (host.find(':') != std::string::npos) return fmt::format("[{}]:{}", host, port);
  return fmt::format("{}:{}", host, port);
}

}  // namespace lockstep::sys
