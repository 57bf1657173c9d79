#include "launch/hosts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "usage_error.h"

namespace lockstep::tool {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

/// The message of the UsageError, or "no error".
template <class Call>
std::string refusal(Call call) {
  try {
    call();
    return "no error";
  } catch (const UsageError& error) {
    return error.what();
  }
}

TEST(Hosts, AListGivesEachTheSameRanks) {
  EXPECT_THAT(parse_hosts("a", 3), ElementsAre(Host{"a", 3}));
  EXPECT_THAT(parse_hosts("a, b.example.org,::1", 2),
              ElementsAre(Host{"a", 2}, Host{"b.example.org", 2}, Host{"::1", 2}));
}

TEST(Hosts, WrongListsAreRefused) {
  EXPECT_THAT(refusal([] { parse_hosts("", 1); }), HasSubstr("no name"));
  EXPECT_THAT(refusal([] { parse_hosts("a,,b", 1); }), HasSubstr("no name"));
  EXPECT_THAT(refusal([] { parse_hosts("a,", 1); }), HasSubstr("no name"));
  EXPECT_THAT(refusal([] { parse_hosts("a,b,a", 1); }), HasSubstr("a is there twice"));
  EXPECT_THAT(refusal([] { parse_hosts("a:80", 1); }), HasSubstr("without a port"));
  EXPECT_THAT(refusal([] { parse_hosts("a b", 1); }), HasSubstr("\"a b\""));
  EXPECT_THAT(refusal([] { parse_hosts("a,b", kMaxRanks); }), HasSubstr("131072 ranks"));
}

TEST(Hostfile, HasSlotsCommentsAndEmptyLines) {
  EXPECT_THAT(parse_hostfile("# all of them\n\na slots=2  # fast\r\n  b\tslots=3\nc", "f", 4),
              ElementsAre(Host{"a", 2}, Host{"b", 3}, Host{"c", 4}));
}

TEST(Hostfile, WrongLinesAreNamed) {
  EXPECT_THAT(refusal([] { parse_hostfile("a\nb slot=2\n", "the/file", 1); }),
              HasSubstr("the/file:2: \"b slot=2\" is not"));
  for (const char* line : {"a slots=0", "a slots=-1", "a slots=x", "a slots=", "a slots=2 max=3",
                           "a 4", "a slots=99999999999"}) {
    EXPECT_THAT(refusal([&] { parse_hostfile(line, "f", 1); }), HasSubstr("f:1: ")) << line;
  }
  EXPECT_THAT(refusal([] { parse_hostfile("a", "f", std::nullopt); }), HasSubstr("no -n"));
  EXPECT_THAT(refusal([] { parse_hostfile("# none\n", "f", 1); }), HasSubstr("f names no host"));
  EXPECT_THAT(refusal([] { parse_hostfile("a\na\n", "f", 1); }), HasSubstr("f:2: host a is there"));
}

TEST(Hosts, AHostIsFoundByItsName) {
  const std::vector<Host> hosts = parse_hosts("node1,node2.example.org,node3", 1);
  EXPECT_EQ(find_host(hosts, "node1"), 0);
  EXPECT_EQ(find_host(hosts, "node1.example.org"), 0);
  EXPECT_EQ(find_host(hosts, "node2"), 1);
  EXPECT_EQ(find_host(hosts, "node2.example.org"), 1);
  EXPECT_EQ(find_host(hosts, "node"), std::nullopt);
  EXPECT_EQ(find_host(parse_hosts("a,a.b", 1), "a"), std::nullopt) << "two of them";
}

TEST(Placement, RanksAreCountedThroughTheHosts) {
  const Placement placement{.hosts = {{"a", 2}, {"b", 3}, {"c", 1}}, .here = 1};
  EXPECT_EQ(placement.size(), 6);
  EXPECT_EQ(placement.first_rank(), 2);
  EXPECT_EQ(placement.local_size(), 3);
  EXPECT_FALSE(placement.one_host());
}

}  // namespace
}  // namespace lockstep::tool
