#include "bench/peers/board.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <thread>

namespace lockstep::bench::peers {
namespace {

constexpr std::size_t kBytes = 4096;

[[noreturn]] void fail(const std::string& what) {
  throw std::system_error(errno, std::generic_category(), what);
}

void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace

void Board::create(const std::string& path) {
  const int file = open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (file < 0) fail("cannot make " + path);
  const int failed = ftruncate(file, kBytes);
  close(file);
  if (failed != 0) fail("cannot size " + path);
}

Board::Board(const std::string& path, int ranks) : ranks_(static_cast<std::uint32_t>(ranks)) {
  static_assert(sizeof(Page) <= kBytes);
  const bool core_each = static_cast<unsigned>(ranks) <= std::thread::hardware_concurrency();
  polls_ = core_each ? 100'000 : 100;
  const int file = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (file < 0) fail("cannot open " + path);
  void* memory = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  if (memory == MAP_FAILED) fail("cannot map " + path);
  page_ = static_cast<Page*>(memory);  // zeros, as the file is new
}

Board::~Board() { munmap(page_, kBytes); }

void Board::meet() {
  const std::uint32_t round = page_->round.load(std::memory_order_acquire);
  if (page_->arrived.fetch_add(1, std::memory_order_acq_rel) + 1 == ranks_) {
    page_->arrived.store(0, std::memory_order_relaxed);
    page_->round.store(round + 1, std::memory_order_release);
    return;
  }
  for (int polls = 1; page_->round.load(std::memory_order_acquire) == round; ++polls) {
    if (polls >= polls_) {
      sched_yield();
    } else {
      relax();
    }
  }
}

}  // namespace lockstep::bench::peers
