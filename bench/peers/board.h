// Board: a page that the ranks of one contestant share, for entering a call at the same moment.
// The driver makes the file, the ranks map it.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

namespace lockstep::bench::peers {

class Board {
 public:
  /// Makes the file; the driver's part.
  static void create(const std::string& path);

  Board(const std::string& path, int ranks);
  ~Board();
  Board(const Board&) = delete;
  Board& operator=(const Board&) = delete;

  /// Returns when all ranks are here. Polls: nobody else runs on these cores now.
  void meet();

 private:
  struct Page {
    alignas(128) std::atomic<std::uint32_t> arrived;
    alignas(128) std::atomic<std::uint32_t> round;
  };
  Page* page_ = nullptr;
  std::uint32_t ranks_;
  int polls_;  // before the core is given to another rank
};

}  // namespace lockstep::bench::peers
