// Runs the built command and keeps what it printed.
//
//   const Result result = lockstep_command("explain all_reduce -n 4");
#pragma once

#include <string>
#include <vector>

namespace lockstep::tool {

struct Result {
  int code = -1;  // exit code; -1 if the command was ended by a signal
  std::string out;
  std::string err;
};

/// `arguments` are words for a shell.
Result lockstep_command(const std::string& arguments);

std::vector<std::string> lines_of(const std::string& text);

/// A file name of this test alone, in the directory for temporary files; removed with the object.
class TemporaryFile {
 public:
  explicit TemporaryFile(const std::string& name);
  ~TemporaryFile();
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] std::string text() const;

 private:
  std::string path_;
};

}  // namespace lockstep::tool
