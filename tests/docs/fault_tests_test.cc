// docs/fault-tests.md says for every failure of the catalogue that is due which tests show it: each
// must be listed, and the tests must exist.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "tests/docs/sources.h"

namespace {

using namespace lockstep::docs;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

/// The ids of the catalogue, whose numbers have gaps, without what comes with checkpoints and
/// restarts.
const std::set<std::string>& due() {
  static const std::set<std::string> ids = {
      "A1",  "A3",  "A4",  "A5",  "A6",  "A8",  "A10", "A11", "A14", "A15", "A16", "A17", "A18",
      "A20", "A21", "A22", "A26", "A27", "A28", "B1",  "B2",  "B3",  "B4",  "B6",  "B7",  "B8",
      "B9",  "B11", "B12", "B13", "B14", "B16", "B17", "B18", "B19", "B21", "B22", "B23", "B24",
      "C1",  "C2",  "C3",  "C4",  "C6",  "C7",  "C8",  "C9",  "C11", "C12", "C13", "C14", "C16",
      "C17", "C18", "C19", "C21", "C22", "D1",  "D2",  "D3",  "D4",  "D6",  "D7",  "D8",  "D9",
      "D11", "D26", "D27", "D28", "E1",  "E2",  "E3",  "E4",  "E6",  "E7",  "E8",  "E9",  "E11",
      "E12", "E13", "E14", "E16", "F1",  "F2",  "F3",  "F4",  "F6",  "F7",  "F8",  "F9",  "F11",
      "F12", "F13", "F16", "F17", "F18", "F19"};
  return ids;
}

/// Besides those of gtest: jobs of the MPI engine as mpi/case, targets of make as "make target".
std::set<std::string> all_names() {
  std::set<std::string> names = all_tests();
  const auto add = [&](const char* file, const char* pattern, const std::string& prefix) {
    const std::string text = content(kRoot / file);
    const std::regex found(pattern);
    for (std::sregex_iterator i(text.begin(), text.end(), found), end; i != end; ++i) {
      names.insert(prefix + (*i)[1].str());
    }
  };
  add("tests/engines/mpi/CMakeLists.txt", R"(lockstep_mpi_job\((\w+) job)", "mpi/");
  add("Makefile", R"(\n([a-z-]+):)", "make ");
  return names;
}

/// What is wrong with the rows: | id | fault | tests | what they leave out |.
std::vector<std::string> problems(const std::string& table, const std::set<std::string>& names,
                                  std::set<std::string> missing) {
  static const std::regex id(R"([A-F][0-9]+)");
  std::vector<std::string> found;
  std::istringstream lines(table);
  for (std::string line; std::getline(lines, line);) {
    const std::vector<std::string> row = split(line.substr(line.starts_with("|") ? 1 : 0), '|');
    if (!line.starts_with("| ") || !std::regex_match(row[0], id)) continue;
    if (row.size() != 4) {
      found.push_back(row[0] + ": not four columns");
      continue;
    }
    if (missing.erase(row[0]) == 0) found.push_back(row[0] + ": twice, or not due");
    if (row[2] == "-") {
      if (!row[3].starts_with("not tested: ")) found.push_back(row[0] + ": no test and no reason");
      continue;
    }
    for (const std::string& name : split(row[2], ',')) {
      if (!names.contains(name)) found.push_back(fmt::format("{}: no such test: {}", row[0], name));
    }
  }
  for (const std::string& each : missing) found.push_back(each + ": not listed");
  return found;
}

TEST(FaultTests, EveryFailureIsListedWithTestsThatExist) {
  EXPECT_THAT(problems(content(kRoot / "docs/fault-tests.md"), all_names(), due()), IsEmpty());
}

/// A test that has the id of a failure in its name is in the row of it.
TEST(FaultTests, TestsWithAnIdInTheirNameAreInItsRow) {
  static const std::regex with_id(R"(\w+\.([A-F][0-9]+)+[A-Z]\w*)");
  static const std::regex id(R"([A-F][0-9]+)");
  const std::string table = content(kRoot / "docs/fault-tests.md");
  for (const std::string& name : all_tests()) {
    if (!std::regex_match(name, with_id)) continue;
    std::string rest = name.substr(name.find('.') + 1);
    for (std::smatch match;
         std::regex_search(rest, match, id, std::regex_constants::match_continuous);
         rest = match.suffix()) {
      if (!due().contains(match.str())) continue;
      const std::size_t row = table.find("\n| " + match.str() + " |");
      ASSERT_NE(row, std::string::npos) << match.str();
      const std::string line = table.substr(row + 1, table.find('\n', row + 1) - row);
      EXPECT_NE(line.find(name), std::string::npos)
          << name << " is not in the row of " << match.str();
    }
  }
}

TEST(FaultTests, MistakesAreFound) {
  const std::set<std::string> names = {"Suite.Name", "mpi/killed", "make chaos"};
  EXPECT_THAT(problems("| id | fault | tests | what |\n|---|---|---|---|\n"
                       "| A1 | x | Suite.Name, mpi/killed, make chaos | - |\n"
                       "| A2 | y | - | not tested: why |\n",
                       names, {"A1", "A2"}),
              IsEmpty());
  EXPECT_THAT(problems("| A1 | x | Suite.Gone | - |", names, {"A1"}),
              ElementsAre("A1: no such test: Suite.Gone"));
  EXPECT_THAT(problems("| A1 | x | - | - |", names, {"A1"}),
              ElementsAre("A1: no test and no reason"));
  EXPECT_THAT(problems("| A1 | x | - |", names, {"A1"}),
              ElementsAre("A1: not four columns", "A1: not listed"));
  EXPECT_THAT(problems("| A1 | x | Suite.Name | - |\n| A1 | x | Suite.Name | - |", names, {"A1"}),
              ElementsAre("A1: twice, or not due"));
  EXPECT_THAT(problems("", names, {"A1"}), ElementsAre("A1: not listed"));
}

}  // namespace
