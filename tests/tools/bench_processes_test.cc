// `lockstep bench` under `lockstep launch`: ranks that are processes.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/tools/command.h"

namespace lockstep::tool {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

/// bench as the program of so many ranks, each started by a shell.
Result bench_processes(int ranks, const std::string& arguments) {
  return lockstep_command(fmt::format("launch -n {} --no-prefix -- sh -c '\"{}\" bench {}'", ranks,
                                      LOCKSTEP_COMMAND, arguments));
}

class BenchProcesses : public testing::TestWithParam<const char*> {};

TEST_P(BenchProcesses, RankZeroReportsWhatCarriedTheGroup) {
  const std::string memory = GetParam();
  const TemporaryFile json("figures.json");
  const Result bench = bench_processes(
      3, fmt::format("all_reduce all_gather scatter send_receive barrier -b 4K -e 4K -n 3 -w 1 "
                     "--memory {} -J {}",
                     memory, json.path()));
  ASSERT_EQ(bench.code, 0) << bench.out << bench.err;
  EXPECT_EQ(bench.err, "");
  EXPECT_THAT(bench.out, AllOf(HasSubstr("# all_reduce: 3 ranks as processes on 1 host over shared "
                                         "memory"),
                               HasSubstr("# wrong elements: 0 OK")));
  EXPECT_EQ(bench.out.find("# all_reduce:"), bench.out.rfind("# all_reduce:")) << bench.out;
  const auto rows = nlohmann::json::parse(json.text())["rows"];
  ASSERT_EQ(rows.size(), 5U);
  for (const auto& row : rows) {
    EXPECT_EQ(row["ranks"], 3);
    EXPECT_EQ(row["transport"], "shared memory");
    EXPECT_EQ(row["memory"], memory);
    const auto& figures = row.contains("out_of_place") ? row["out_of_place"] : row["in_place"];
    EXPECT_EQ(figures["wrong"], 0);
    EXPECT_EQ(figures["iterations_us"].size(), 3U);
    EXPECT_GT(figures["min_us"], 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Memory, BenchProcesses, testing::Values("own", "session"),
                         [](const auto& of) { return std::string(of.param); });

TEST(BenchOverHosts, UsesTheWireBetweenThem) {
  const Result bench = lockstep_command(
      fmt::format("launch -n 2 --bind 127.0.0.1 --no-prefix -- sh -c 'LOCKSTEP_HOST=$LOCKSTEP_RANK "
                  "exec \"{}\" bench -b 1K -e 1K -n 2 -w 1'",
                  LOCKSTEP_COMMAND));
  EXPECT_EQ(bench.code, 0) << bench.out << bench.err;
  EXPECT_THAT(bench.out, HasSubstr("2 ranks as processes on 2 hosts over tls"));
  EXPECT_THAT(bench.out, HasSubstr("the longest of the ranks' own times"));
}

TEST(BenchProcessesRefuse, OtherOptionsOnOneRank) {
  const Result bench = bench_processes(2, "-e 4 -b $LOCKSTEP_RANK -n 1");
  EXPECT_EQ(bench.code, 2) << bench.out << bench.err;
  EXPECT_THAT(bench.err,
              HasSubstr("the ranks were given different options: rank 0 \"all_reduce -b 0 "
                        "-e 4"));
  EXPECT_THAT(bench.err, HasSubstr("rank 1 \"all_reduce -b 1 -e 4"));
  EXPECT_THAT(bench.out, Not(HasSubstr("# all_reduce")));
}

TEST(BenchProcessesRefuse, AnotherNumberOfRanks) {
  const Result bench = bench_processes(2, "-t 3 -e 4 -n 1");
  EXPECT_EQ(bench.code, 2);
  EXPECT_THAT(bench.err, HasSubstr("-t is 3, but 2 ranks were started; leave -t out"));
}

TEST(BenchProcessesRefuse, UnknownMemory) {
  const Result bench = lockstep_command("bench --memory mine -e 4 -n 1");
  EXPECT_EQ(bench.code, 2);
  EXPECT_THAT(bench.err, HasSubstr("--memory is \"mine\"; it must be own or session"));
}

}  // namespace
}  // namespace lockstep::tool
