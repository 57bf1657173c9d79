#include "sys/address.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <string>

#include "lockstep/error.h"

namespace lockstep::sys {
namespace {

using testing::HasSubstr;

struct Good {
  std::string text;
  Address address;
};

class GoodAddress : public testing::TestWithParam<Good> {};

TEST_P(GoodAddress, ParsesAndPrintsBack) {
  const Address parsed = Address::parse(GetParam().text);
  EXPECT_EQ(parsed, GetParam().address);
  EXPECT_EQ(parsed.to_string(), GetParam().text);
}

Address tcp(std::string host, std::uint16_t port) {
  return {.kind = Address::Kind::tcp, .host = std::move(host), .port = port, .path = {}};
}
Address local(std::string path) {
  return {.kind = Address::Kind::unix_socket, .host = {}, .port = 0, .path = std::move(path)};
}

INSTANTIATE_TEST_SUITE_P(
    Table, GoodAddress,
    testing::Values(Good{"10.0.0.7:4000", tcp("10.0.0.7", 4000)},
                    Good{"localhost:0", tcp("localhost", 0)},
                    Good{"node-7.rack_1.example:65535", tcp("node-7.rack_1.example", 65535)},
                    Good{"0.0.0.0:1", tcp("0.0.0.0", 1)}, Good{"[::1]:4000", tcp("::1", 4000)},
                    Good{"[::]:0", tcp("::", 0)}, Good{"[fe80::1%eth0]:9", tcp("fe80::1%eth0", 9)},
                    Good{"unix:/run/a b", local("/run/a b")},
                    Good{"unix:relative", local("relative")}, Good{"unix:@name", local("@name")},
                    Good{"unix::", local(":")},
                    Good{"unix:" + std::string(107, 'x'), local(std::string(107, 'x'))}));

struct Bad {
  std::string text;
  std::string rule;          // must be in the message, as must the text
  std::string shown = text;  // how the text is printed
};

class BadAddress : public testing::TestWithParam<Bad> {};

TEST_P(BadAddress, IsRefusedWithEntryAndRule) {
  const Bad& bad = GetParam();
  try {
    Address::parse(bad.text);
    FAIL() << "accepted: " << bad.text;
  } catch (const ConfigError& e) {
    EXPECT_THAT(e.what(), HasSubstr("\"" + bad.shown + "\""));
    EXPECT_THAT(e.what(), HasSubstr(bad.rule));
    EXPECT_EQ(e.code(), Code::invalid_argument);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Table, BadAddress,
    testing::Values(Bad{"", "empty"}, Bad{"host", "the port is missing"},
                    Bad{"host:", "the port is missing"}, Bad{":4000", "the host is missing"},
                    Bad{":", "the host is missing"}, Bad{"host:65536", "above 65535"},
                    Bad{"host:99999999999999999999", "above 65535"}, Bad{"host:-1", "not a number"},
                    Bad{"host:+1", "not a number"}, Bad{"host:0x10", "not a number"},
                    Bad{"host:http", "not a number"}, Bad{"host:1.5", "not a number"},
                    Bad{" host:1", "space"}, Bad{"host:1 ", "space"}, Bad{"ho st:1", "space"},
                    Bad{"host:1\n", "space or a control", "host:1\\x0a"},
                    Bad{std::string("ho\0st:1", 7), "control", "ho\\x00st:1"},
                    Bad{"::1:4000", "brackets"}, Bad{"2001:db8::7", "brackets"},
                    Bad{"host:1:2", "more than one ':'"}, Bad{"[::1]", "the port is missing"},
                    Bad{"[::1]:", "the port is missing"}, Bad{"[::1", "']' is missing"},
                    Bad{"[::1]4000", "':' must follow"}, Bad{"[]:1", "not an IPv6"},
                    Bad{"[host]:1", "not an IPv6"}, Bad{"[127.0.0.1]:1", "not an IPv6"},
                    Bad{"http://host:1", "leave \"http://\" out"}, Bad{"tcp://host:1", "URL"},
                    Bad{"/run/socket", "starts with \"unix:\""}, Bad{"host:1/path", "'/'"},
                    Bad{"1.2.3:4", "not an IPv4"}, Bad{"256.0.0.1:4", "not an IPv4"},
                    Bad{"1.2.3.4.5:4", "not an IPv4"}, Bad{"h\u00f6st:1", "not a host name"},
                    Bad{"host]:1", "not a host name"}, Bad{"user@host:1", "not a host name"},
                    Bad{"unix:", "empty"}, Bad{"unix:@", "empty"},
                    Bad{"unix:" + std::string(108, 'x'), "at most 107"},
                    Bad{std::string("unix:a\0b", 8), "zero byte", "unix:a\\x00b"}));

/// Whatever the text, it is an address that prints itself back or a ConfigError that says so.
TEST(Address, RandomTextIsParsedOrRefused) {
  constexpr std::string_view pieces[] = {
      "unix:", ":",  "[", "]", "::1", "host", "127.0.0.1", "65535", "0", "/", "@",
      " ",     "//", "%", "-", "\t",  "\xff", "99999",     "fe80",  ".", ""};
  std::mt19937_64 random(1);
  int good = 0;
  for (int i = 0; i < 20'000; ++i) {
    std::string text;
    for (auto left = random() % 6; left > 0; --left) text += pieces[random() % std::size(pieces)];
    try {
      const Address parsed = Address::parse(text);
      EXPECT_EQ(Address::parse(parsed.to_string()), parsed) << text;
      ++good;
    } catch (const ConfigError& e) {
      EXPECT_THAT(e.what(), HasSubstr("is not an address: "));
    }
  }
  EXPECT_GT(good, 100);
}

}  // namespace
}  // namespace lockstep::sys
