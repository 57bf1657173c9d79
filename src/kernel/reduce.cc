#include "kernel/reduce.h"

#include <fmt/format.h>
#include <hwy/highway.h>

#include "kernel/program.h"

namespace lockstep::kernel {

std::vector<std::uint8_t> tree_merges(int leaves) {
  std::vector<std::uint8_t> merges(static_cast<std::size_t>(leaves));
  for (int i = 0; i < leaves; ++i) {
    merges[static_cast<std::size_t>(i)] = static_cast<std::uint8_t>(tree_merge(i, leaves));
  }
  return merges;
}

Status check_supported(Op op, DType dtype) {
  const auto refuse = [&](std::string_view instead) {
    return Status(
        ErrorKind::invalid_usage, Code::invalid_argument,
        fmt::format("{} of {} does not exist: {}", to_string(op), to_string(dtype), instead));
  };
  if (dtype == DType::boolean && op != Op::min && op != Op::max) {
    return refuse("use max for \"any\" or min for \"all\", or convert to an integer to count");
  }
  if (is_integer(dtype) && op == Op::mean) {
    return refuse("sum, then divide by the number of replicas, or convert to a floating type");
  }
  if (is_complex(dtype) && op != Op::sum && op != Op::mean) {
    return refuse(op == Op::product ? "gather the values and multiply them yourself"
                                    : "complex numbers have no order; reduce a real part or "
                                      "a magnitude instead");
  }
  return {};
}

void reduce(const Reduction& reduction) { Program(reduction).run(); }

const char* target_name() {
  // Ordered from the best down, as the dispatch tables are.
  const auto targets = hwy::SupportedTargets() & HWY_TARGETS;
  return hwy::TargetName(targets != 0 ? targets & -targets : HWY_STATIC_TARGET);
}

}  // namespace lockstep::kernel
