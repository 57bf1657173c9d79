// The parts of `lockstep data`. Each returns the exit code: 0 good, 1 something is corrupt or could
// not be read.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::tool {

using Files = std::vector<std::string>;

/// What to do with a corrupt record.
enum class Corrupt { stop, skip };

int inspect_data(const Files& files, std::uint64_t show);
int count_data(const Files& files);
int verify_data(const Files& files, Corrupt corrupt);

struct ShardOptions {
  Files files;
  int into = 0;
  std::string output;
  std::string compression = "none";
  Corrupt corrupt = Corrupt::stop;
};
int shard_data(const ShardOptions& options);

/// How far a long read is: one line that changes, on a terminal only.
class DataProgress {
 public:
  DataProgress();
  ~DataProgress() { clear(); }
  DataProgress(const DataProgress&) = delete;
  DataProgress& operator=(const DataProgress&) = delete;

  void show(const std::string& file, std::uint64_t records);
  /// Before anything else is printed.
  void clear();
  /// One line about what could not be done.
  void complain(const std::string& what);

 private:
  bool terminal_;
  bool shown_ = false;
  std::chrono::steady_clock::time_point last_;
};

}  // namespace lockstep::tool
