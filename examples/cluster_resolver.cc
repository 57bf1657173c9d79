// Which task of the cluster this process is, asked of its strategy. Every task is a process with a
// TF_CONFIG of its own:
//
//   {"cluster": {"worker": ["localhost:12345", "localhost:23456"], "ps": ["localhost:34567"]},
//    "task": {"type": "worker", "index": 0}}
#include <lockstep/lockstep.h>

#include <cstdio>

namespace ls = lockstep;

int main(int, char** argv) try {
  // Re-executes the program with faster kernels if OpenBLAS does not know this processor.
  ls::choose_blas_kernels(argv);
  // A parameter server has no replicas, so it asks before there is a strategy.
  if (ls::resolve_cluster().resolver->task_type() == "ps") {
    std::printf("a parameter server: nothing to do in synchronous training\n");
    return 0;
  }

  ls::MultiWorkerMirroredStrategy strategy;  // the cluster and the task are those of TF_CONFIG
  const auto scope = strategy.scope();
  const double all = strategy.reduce(ls::ReduceOp::sum, 1.0).item<double>();

  const ls::ClusterResolver& resolver = strategy.cluster_resolver();
  if (strategy.num_workers() > 1) {  // a chief, if there is one, and workers
    std::printf("%s %d of %d at %s, over %s: %.0f have come\n", resolver.task_type()->c_str(),
                resolver.task_id().value(), strategy.num_workers(), resolver.master().c_str(),
                strategy.transport().c_str(), all);
  } else {
    std::printf("nobody else: %.0f has come\n", all);
  }
} catch (const ls::Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
