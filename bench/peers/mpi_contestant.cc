// All-reduce of an MPI library; one source for Open MPI and MPICH.
#include <mpi.h>

#include <stdexcept>

#include "bench/peers/rank_main.h"

namespace lockstep::bench::peers {
namespace {

class MpiCall final : public Call {
 public:
  explicit MpiCall(const Job& job) : memory_(job) {}
  std::span<float> memory() override { return memory_.all(); }
  void run() override {
    for (const std::span<float> piece : memory_.pieces()) {
      MPI_Allreduce(MPI_IN_PLACE, piece.data(), static_cast<int>(piece.size()), MPI_FLOAT, MPI_SUM,
                    MPI_COMM_WORLD);
    }
  }

 private:
  CallerMemory memory_;
};

class Mpi final : public Contestant {
 public:
  explicit Mpi(const RankOptions& options) {
    MPI_Init(nullptr, nullptr);
    int size = 0;
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (size != options.ranks) throw std::runtime_error("MPI started another number of ranks");
  }
  ~Mpi() override { MPI_Finalize(); }
  Mpi(const Mpi&) = delete;
  Mpi& operator=(const Mpi&) = delete;

  std::unique_ptr<Call> prepare(const Job& job) override { return std::make_unique<MpiCall>(job); }
  void barrier() override { MPI_Barrier(MPI_COMM_WORLD); }
};

}  // namespace
}  // namespace lockstep::bench::peers

int main(int argc, char** argv) {
  using namespace lockstep::bench::peers;
  return rank_main(argc, argv,
                   [](const RankOptions& options) { return std::make_unique<Mpi>(options); });
}
