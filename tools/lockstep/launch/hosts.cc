#include "launch/hosts.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "usage_error.h"

namespace lockstep::tool {
namespace {

constexpr std::string_view kBlank = " \t\r";

std::string_view trim(std::string_view text) {
  const auto first = text.find_first_not_of(kBlank);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlank) - first + 1);
}

/// Cuts the part up to the separator off the text.
std::string_view next_part(std::string_view& text, std::string_view separators) {
  const auto end = text.find_first_of(separators);
  const std::string_view part = text.substr(0, end);
  text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
  return part;
}

/// What is wrong with the name of a host, or empty.
std::string_view refusal(std::string_view name) {
  if (name.empty()) return "a host has no name";
  const bool plain = std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '-' || c == '_' || c == ':';
  });
  if (!plain) return "a host's name has letters, digits, '.', '-', '_' and ':' only";
  if (std::count(name.begin(), name.end(), ':') == 1) {
    return "hosts are named without a port; --port-base says the first";
  }
  return {};
}

/// "slots=4" -> 4.
std::optional<int> parse_slots(std::string_view word) {
  constexpr std::string_view kName = "slots=";
  if (!word.starts_with(kName)) return std::nullopt;
  word.remove_prefix(kName.size());
  int slots = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), slots);
  if (error != std::errc() || end != word.data() + word.size()) return std::nullopt;
  if (slots < 1 || slots > kMaxRanks) return std::nullopt;
  return slots;
}

void add(std::vector<Host>& hosts, Host host, const std::string& where) {
  if (const std::string_view problem = refusal(host.name); !problem.empty()) {
    throw UsageError(fmt::format("{}: \"{}\": {}", where, host.name, problem));
  }
  if (std::any_of(hosts.begin(), hosts.end(),
                  [&](const Host& other) { return other.name == host.name; })) {
    throw UsageError(fmt::format("{}: host {} is there twice", where, host.name));
  }
  hosts.push_back(std::move(host));
}

void check_size(const std::vector<Host>& hosts, std::string_view where) {
  long long size = 0;
  for (const Host& host : hosts) size += host.slots;
  if (size > kMaxRanks) {
    throw UsageError(fmt::format("{}: {} ranks; at most {} are possible", where, size, kMaxRanks));
  }
}

}  // namespace

std::vector<Host> parse_hosts(std::string_view list, int slots) {
  std::vector<Host> hosts;
  for (bool more = true; more;) {
    more = list.find(',') != std::string_view::npos;
    add(hosts, {std::string(trim(next_part(list, ","))), slots}, "--hosts");
  }
  check_size(hosts, "--hosts");
  return hosts;
}

std::vector<Host> parse_hostfile(std::string_view text, std::string_view name,
                                 std::optional<int> slots) {
  std::vector<Host> hosts;
  for (int number = 1; !text.empty(); ++number) {
    std::string_view line = next_part(text, "\n");
    line = trim(line.substr(0, line.find('#')));
    if (line.empty()) continue;
    const std::string where = fmt::format("{}:{}", name, number);
    const std::string full(line);
    Host host{std::string(next_part(line, " \t")), 0};
    line = trim(line);
    const std::optional<int> own = line.empty() ? slots : parse_slots(line);
    if (!own && line.empty()) {
      throw UsageError(fmt::format("{}: {} has no slots=N and there is no -n", where, host.name));
    }
    if (!own) {
      throw UsageError(
          fmt::format("{}: \"{}\" is not \"host\" or \"host slots=N\" with N from 1 to {}", where,
                      full, kMaxRanks));
    }
    host.slots = *own;
    add(hosts, std::move(host), where);
  }
  if (hosts.empty()) throw UsageError(fmt::format("{} names no host", name));
  check_size(hosts, name);
  return hosts;
}

std::optional<int> find_host(const std::vector<Host>& hosts, std::string_view hostname) {
  const auto shortened = [](std::string_view name) { return name.substr(0, name.find('.')); };
  std::optional<int> found;
  for (std::size_t i = 0; i < hosts.size(); ++i) {
    const bool same = hosts[i].name == hostname || hosts[i].name == shortened(hostname) ||
                      shortened(hosts[i].name) == hostname;
    if (!same) continue;
    if (found) return std::nullopt;
    found = static_cast<int>(i);
  }
  return found;
}

int Placement::size() const {
  int size = 0;
  for (const Host& host : hosts) size += host.slots;
  return size;
}

int Placement::first_rank() const {
  int first = 0;
  for (int i = 0; i < here; ++i) first += hosts[static_cast<std::size_t>(i)].slots;
  return first;
}

}  // namespace lockstep::tool
