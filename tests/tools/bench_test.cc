// `lockstep bench` on small sizes: every collective and every element type, results checked, and
// the JSON read back.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "lockstep/dtype.h"
#include "tests/tools/command.h"

namespace lockstep::tool {
namespace {

using testing::HasSubstr;

class BenchOf : public testing::TestWithParam<const char*> {};

TEST_P(BenchOf, EveryTypeIsRight) {
  const std::string collective = GetParam();
  const TemporaryFile json("figures.json");
  const Result bench = lockstep_command("bench " + collective +
                                        " -b 4 -e 40000 -f 100 -t 3 -r 1 -n 2 -w 1 -d all -o all "
                                        "-c 1 -J " +
                                        json.path());
  ASSERT_EQ(bench.code, 0) << bench.out << bench.err;
  EXPECT_THAT(bench.out, HasSubstr("# wrong elements: 0 OK"));
  const auto document = nlohmann::json::parse(json.text());
  std::set<std::string> types;
  std::set<std::string> ops;
  for (const auto& row : document["rows"]) {
    EXPECT_EQ(row["collective"], collective);
    EXPECT_EQ(row["ranks"], 3);
    types.insert(row["type"]);
    ops.insert(row["redop"]);
    EXPECT_TRUE(row.contains("out_of_place") || row.contains("in_place"));
    for (const char* section : {"out_of_place", "in_place"}) {
      if (!row.contains(section)) continue;
      const auto& figures = row[section];
      EXPECT_EQ(figures["wrong"], 0);
      EXPECT_EQ(figures["iterations_us"].size(), 2U);
      EXPECT_GT(figures["time_us"], 0);
      EXPECT_LE(figures["min_us"], figures["time_us"]);
      EXPECT_GE(figures["max_us"], figures["time_us"]);
      EXPECT_EQ(figures["algorithm"] == "", collective == "send_receive");
    }
  }
  if (collective == "barrier") return;
  EXPECT_EQ(types.size(), static_cast<std::size_t>(kDTypeCount));
  const bool reduces = collective.find("reduce") != std::string::npos;
  EXPECT_EQ(ops.size(), reduces ? 5U : 1U);
}

INSTANTIATE_TEST_SUITE_P(Collectives, BenchOf,
                         testing::Values("all_reduce", "reduce", "broadcast", "all_gather",
                                         "reduce_scatter", "gather", "scatter", "all_to_all",
                                         "barrier", "send_receive"),
                         [](const auto& of) { return std::string(of.param); });

nlohmann::json rows_of(const std::string& arguments) {
  const TemporaryFile json("rows.json");
  const Result result = lockstep_command("bench " + arguments + " -J " + json.path());
  EXPECT_EQ(result.code, 0) << result.out << result.err;
  return nlohmann::json::parse(json.text())["rows"];
}

std::vector<std::uint64_t> sizes_of(const nlohmann::json& rows) {
  std::vector<std::uint64_t> sizes;
  for (const auto& row : rows) sizes.push_back(row["size"]);
  return sizes;
}

TEST(Bench, SizesGrowByFactorOrStep) {
  using testing::ElementsAre;
  EXPECT_THAT(sizes_of(rows_of("barrier -n 1 -w 0")), ElementsAre(0));
  EXPECT_THAT(sizes_of(rows_of("broadcast -b 1K -e 16K -f 4 -n 1 -w 0 -t 1")),
              ElementsAre(1024, 4096, 16384));
  EXPECT_THAT(sizes_of(rows_of("broadcast -b 1K -e 4K -i 1K -n 1 -w 0 -t 1")),
              ElementsAre(1024, 2048, 3072, 4096));
  // Three ranks of float64 share 100 bytes: 4 elements each.
  EXPECT_THAT(sizes_of(rows_of("all_gather -b 100 -e 100 -t 3 -d double -n 1 -w 0")),
              ElementsAre(96));
}

TEST(Bench, BusBandwidthIsThatOfNcclTests) {
  const auto factor = [](const std::string& collective) {
    const auto rows = rows_of(collective + " -b 4K -e 4K -t 4 -n 3 -w 1");
    const auto& row = rows[0];
    const auto& figures = row.contains("out_of_place") ? row["out_of_place"] : row["in_place"];
    return figures["busbw_gb_per_s"].get<double>() / figures["algbw_gb_per_s"].get<double>();
  };
  EXPECT_NEAR(factor("all_reduce"), 1.5, 1e-9);
  EXPECT_NEAR(factor("all_gather"), 0.75, 1e-9);
  EXPECT_NEAR(factor("reduce_scatter"), 0.75, 1e-9);
  EXPECT_NEAR(factor("all_to_all"), 0.75, 1e-9);
  EXPECT_NEAR(factor("broadcast"), 1, 1e-9);
  EXPECT_NEAR(factor("reduce"), 1, 1e-9);
}

TEST(Bench, TakesTheAlgorithmItIsTold) {
  for (const char* name : {"direct", "tree", "one_pass"}) {
    const auto rows = rows_of(std::string("all_reduce -b 64K -e 64K -t 2 -n 1 -w 0 ") +
                              "--algorithms all_reduce=" + name);
    EXPECT_EQ(rows[0]["out_of_place"]["algorithm"], name);
    EXPECT_EQ(rows[0]["in_place"]["algorithm"], name);
  }
}

TEST(Bench, SumsOfFloat32MayTravelInSixteenBits) {
  for (const char* wire : {"bf16", "f16"}) {
    const auto rows =
        rows_of("-t 3 -b 4K -e 400K -f 100 -n 2 -w 1 -o mean --wire " + std::string(wire));
    for (const auto& row : rows) {
      EXPECT_EQ(row["wire"], wire);
      EXPECT_EQ(row["type"], "float32");
      EXPECT_EQ(row["in_place"]["wrong"], 0);
    }
  }
  const Result other = lockstep_command("bench all_reduce -d float64 --wire bf16");
  EXPECT_NE(other.code, 0);
  EXPECT_THAT(other.err, HasSubstr("--wire bf16 is for all_reduce with -o sum or mean of float32"));
  const Result unknown = lockstep_command("bench all_reduce --wire int8");
  EXPECT_THAT(unknown.err, HasSubstr("--wire is \"int8\"; it must be same, bf16 or f16"));
}

TEST(Bench, ExplainNamesTheAlgorithmThatIsTaken) {
  for (const char* size : {"4", "2K", "8K", "1M"}) {
    const auto rows = rows_of(std::string("all_reduce -t 3 -n 1 -w 0 -b ") + size + " -e " + size);
    const Result explained = lockstep_command(std::string("explain all_reduce -n 3 -b ") + size);
    const std::string taken = rows[0]["out_of_place"]["algorithm"];
    EXPECT_THAT(explained.out, HasSubstr("choice: " + taken + ":")) << size;
  }
}

TEST(Bench, SaysWhenTheFileCannotBeWritten) {
  const Result result = lockstep_command("bench -e 4 -n 1 -J /no/such/directory/figures.json");
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.err, HasSubstr("cannot write /no/such/directory/figures.json"));
}

TEST(Bench, UncheckedResultsAreNotCalledRight) {
  const Result result = lockstep_command("bench -b 4 -e 4 -n 1 -w 0 -c 0");
  EXPECT_EQ(result.code, 0);
  EXPECT_THAT(result.out, HasSubstr("N/A"));
  EXPECT_THAT(result.out, testing::Not(HasSubstr("OK")));
}

}  // namespace
}  // namespace lockstep::tool
