// The kernel by type, operation, number of inputs and size. Bytes are those read and written.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <cstdlib>
#include <vector>

#include "kernel/reduce.h"

namespace lockstep::kernel {
namespace {

void run(benchmark::State& state, Op op, DType dtype, int inputs, std::size_t bytes) {
  const std::size_t count = bytes / size_of(dtype);
  // Zeros are valid for every type, and addition takes no longer for other numbers.
  std::vector<std::vector<std::byte>> memory(static_cast<std::size_t>(inputs) + 1,
                                             std::vector<std::byte>(bytes));
  std::vector<Input> from;
  from.reserve(static_cast<std::size_t>(inputs));
  for (int i = 0; i < inputs; ++i) from.push_back({memory[static_cast<std::size_t>(i)].data()});
  const Target targets[] = {{memory.back().data()}};
  const auto merges = tree_merges(inputs);
  for (auto _ : state) {
    reduce({.op = op,
            .dtype = dtype,
            .inputs = from,
            .merges = merges,
            .targets = targets,
            .count = count,
            .divisor = op == Op::mean ? static_cast<double>(inputs) : 1.0});
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(bytes) * (inputs + 1));
}

void add(Op op, DType dtype, int inputs, std::size_t bytes) {
  if (!check_supported(op, dtype).ok()) return;
  benchmark::RegisterBenchmark(
      fmt::format("{}/{}/{}x{}B", to_string(op), to_string(dtype), inputs, bytes).c_str(),
      [=](benchmark::State& state) { run(state, op, dtype, inputs, bytes); });
}

void register_all() {
  for (int type = 0; type < kDTypeCount; ++type) {
    for (int op = 0; op < kOpCount; ++op) {
      for (const int inputs : {2, 8}) {
        add(static_cast<Op>(op), static_cast<DType>(type), inputs, 16 << 10);
      }
    }
  }
  for (const DType dtype : {DType::float32, DType::bfloat16, DType::float16}) {
    for (const int inputs : {1, 2, 3, 4, 6, 8, 12, 16, 17, 32, 64}) {
      for (const std::size_t bytes : {std::size_t{4}, std::size_t{1} << 10, std::size_t{64} << 10,
                                      std::size_t{1} << 20, std::size_t{16} << 20}) {
        add(Op::sum, dtype, inputs, bytes);
      }
    }
  }
}

}  // namespace
}  // namespace lockstep::kernel

int main(int argc, char** argv) {
  lockstep::kernel::register_all();
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
