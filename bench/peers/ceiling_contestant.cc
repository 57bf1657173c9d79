// No library at all: two processes that read and write the same shared memory as an all-reduce of
// two ranks must, half each, with nothing in between. Variants: "cached", "around" (the cache).
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <stdexcept>
#include <system_error>

#include "bench/kernel/streaming.h"
#include "bench/peers/board.h"
#include "bench/peers/rank_main.h"

namespace lockstep::bench::peers {
namespace {

/// The buffers of both ranks, one after the other.
class SharedBuffers {
 public:
  SharedBuffers(const std::string& path, std::size_t count) : count_(count) {
    const int file = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (file < 0) throw std::system_error(errno, std::generic_category(), "cannot make " + path);
    void* memory = MAP_FAILED;
    if (ftruncate(file, static_cast<off_t>(bytes())) == 0)
      memory = mmap(nullptr, bytes(), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (memory == MAP_FAILED)
      throw std::system_error(errno, std::generic_category(), "cannot map " + path);
    memory_ = static_cast<float*>(memory);
  }
  ~SharedBuffers() { munmap(memory_, bytes()); }
  SharedBuffers(const SharedBuffers&) = delete;
  SharedBuffers& operator=(const SharedBuffers&) = delete;

  [[nodiscard]] std::span<float> of(int rank) const {
    return {memory_ + static_cast<std::size_t>(rank) * count_, count_};
  }

 private:
  [[nodiscard]] std::size_t bytes() const { return 2 * count_ * sizeof(float); }
  std::size_t count_;
  float* memory_ = nullptr;
};

class CeilingCall final : public Call {
 public:
  CeilingCall(const RankOptions& options, Stores stores, Board& board, const Job& job)
      : rank_(options.rank),
        stores_(stores),
        board_(board),
        buffers_(options.directory + "/" + options.name + std::to_string(job.bytes),
                 job.bytes / sizeof(float)) {}

  std::span<float> memory() override { return buffers_.of(rank_); }
  void run() override {
    const std::size_t half = memory().size() / 2;
    const std::size_t at = half * static_cast<std::size_t>(rank_);
    float* both[] = {buffers_.of(0).data() + at, buffers_.of(1).data() + at};
    stream_all_reduce(stores_, both, both, 2, half);
    board_.meet();  // an all-reduce is over when all of the buffer is written
  }

 private:
  int rank_;
  Stores stores_;
  Board& board_;
  SharedBuffers buffers_;
};

class Ceiling final : public Contestant {
 public:
  explicit Ceiling(const RankOptions& options)
      : options_(options),
        stores_(options.variant == "around" ? Stores::around_the_cache : Stores::cached),
        board_(options.directory + "/" + options.name + ".second_board", options.ranks) {
    if (options.ranks != 2) throw std::runtime_error("the ceiling is one of two ranks");
  }
  std::unique_ptr<Call> prepare(const Job& job) override {
    return std::make_unique<CeilingCall>(options_, stores_, board_, job);
  }
  void barrier() override { board_.meet(); }

 private:
  const RankOptions options_;
  Stores stores_;
  Board board_;
};

}  // namespace
}  // namespace lockstep::bench::peers

int main(int argc, char** argv) {
  using namespace lockstep::bench::peers;
  return rank_main(argc, argv,
                   [](const RankOptions& options) { return std::make_unique<Ceiling>(options); });
}
