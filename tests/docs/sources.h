// What tests of documents read: files of this tree, rows of their tables, and which tests there
// are.
#pragma once

#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace lockstep::docs {

inline const std::filesystem::path kRoot = LOCKSTEP_ROOT;

inline std::string content(const std::filesystem::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

inline std::string trimmed(const std::string& text) {
  const auto first = text.find_first_not_of(' ');
  if (first == std::string::npos) return {};
  return text.substr(first, text.find_last_not_of(' ') - first + 1);
}

inline std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, separator);) parts.push_back(trimmed(part));
  return parts;
}

/// The tests of a source file, as Suite.Name.
inline std::set<std::string> tests_in(const std::string& source) {
  static const std::regex test(R"(\bTEST(_F|_P)?\(\s*(\w+)\s*,\s*(\w+)\s*\))");
  std::set<std::string> names;
  for (std::sregex_iterator i(source.begin(), source.end(), test), end; i != end; ++i) {
    names.insert((*i)[2].str() + "." + (*i)[3].str());
  }
  return names;
}

/// All tests of this tree, those of programs that must not compile as compile_fail/case.
inline std::set<std::string> all_tests() {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(kRoot / "tests")) {
    if (entry.path().extension() != ".cc") continue;
    if (entry.path().parent_path().filename() == "compile_fail") {
      names.insert("compile_fail/" + entry.path().stem().string());
    } else {
      names.merge(tests_in(content(entry.path())));
    }
  }
  return names;
}

}  // namespace lockstep::docs
