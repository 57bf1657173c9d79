// docs/api-map.md says for every member of the reference documents which test shows it: the tests
// must exist.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "tests/docs/sources.h"

namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

using namespace lockstep::docs;

/// What is wrong with the rows of a map: | member | lockstep | test | state |.
std::vector<std::string> problems(const std::string& map, const std::set<std::string>& tests) {
  std::vector<std::string> found;
  std::set<std::string> members;
  std::istringstream lines(map);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("## ")) members.clear();
    if (!line.starts_with("| ") || line.starts_with("| member ")) continue;
    const std::vector<std::string> row = split(line.substr(1), '|');
    if (row.size() != 4) {
      found.push_back(line + ": not four columns");
      continue;
    }
    const std::string& member = row[0];
    const std::string& state = row[3];
    if (!members.insert(member).second) found.push_back(member + ": twice");
    if (state != "done" && state != "not built" && !state.starts_with("not yet: ")) {
      found.push_back(fmt::format("{}: no state: {}", member, state));
    }
    if (row[2] == "-") {
      if (state == "done") found.push_back(member + ": done, but no test shows it");
      continue;
    }
    for (const std::string& name : split(row[2], ',')) {
      if (!tests.contains(name)) found.push_back(fmt::format("{}: no such test: {}", member, name));
    }
  }
  return found;
}

TEST(ApiMap, NamesTestsThatExist) {
  EXPECT_THAT(problems(content(kRoot / "docs/api-map.md"), all_tests()), IsEmpty());
}

TEST(ApiMap, HasTheFiveDocuments) {
  const std::string map = content(kRoot / "docs/api-map.md");
  for (const char* heading : {"## r1.9 ", "## r1.13 ", "## r1.14 ", "## r2.3 ", "## r2.4 "}) {
    EXPECT_NE(map.find(heading), std::string::npos) << heading;
  }
}

TEST(ApiMap, HasWhatTheDocumentsNameElsewhere) {
  const std::string map = content(kRoot / "docs/api-map.md");
  for (const char* member :
       {"`InputContext.get_per_replica_batch_size()`", "`DistributedDataset.element_spec`",
        "`PerDeviceDataset.make_one_shot_iterator()`", "`ValueContext.replica_id_in_sync_group`",
        "`MirroredStrategy(cross_device_ops=...)`"}) {
    EXPECT_NE(map.find("\n| " + std::string(member)), std::string::npos) << member;
  }
}

TEST(ApiMap, MistakesAreFound) {
  const std::set<std::string> tests = {"Suite.Name", "compile_fail/case"};
  EXPECT_THAT(problems("| a | b | Suite.Name, compile_fail/case | done |\n"
                       "| c | d | - | not yet: input |\n"
                       "| e | f | - | not built |\n",
                       tests),
              IsEmpty());
  EXPECT_THAT(problems("| a | b | Suite.Gone | done |", tests),
              ElementsAre("a: no such test: Suite.Gone"));
  EXPECT_THAT(problems("| a | b | Suite.Name, Suite.Gone | not yet: input |", tests),
              ElementsAre("a: no such test: Suite.Gone"));
  EXPECT_THAT(problems("| a | b | - | done |", tests),
              ElementsAre("a: done, but no test shows it"));
  EXPECT_THAT(problems("| a | b | - | nearly |", tests), ElementsAre("a: no state: nearly"));
  EXPECT_THAT(problems("| a | b | - |", tests), ElementsAre("| a | b | - |: not four columns"));
  EXPECT_THAT(problems("| a | b | - | not built |\n| a | c | - | not built |", tests),
              ElementsAre("a: twice"));
}

TEST(ApiMap, TestsAreReadFromSources) {
  EXPECT_THAT(tests_in("TEST(A, B) {}\nTEST_F(C,\n       D) {}\nTEST_P( E, F ) {}\nMYTEST(G, H)"),
              ElementsAre("A.B", "C.D", "E.F"));
}

}  // namespace
