#include "lockstep/sync_batch_norm.h"

#include <ATen/ops/batch_norm.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/rsqrt.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>

#include "lockstep/context.h"
#include "lockstep/error.h"
#include "lockstep/replica_context.h"
#include "tensor/torch_text.h"

namespace lockstep::detail {

namespace {

/// Summed over all replicas, differentiably; as it is where there is no step function.
Tensor over_replicas(const Tensor& own) {
  ReplicaContext* replica = get_replica_context();
  if (replica == nullptr || replica->num_replicas_in_sync() == 1) return own;
  return replica->all_reduce(ReduceOp::sum, own);
}

/// Sums over a batch do not fit 16 bits.
at::ScalarType summed_in(const Tensor& input) {
  const at::ScalarType own = input.scalar_type();
  return own == at::kHalf || own == at::kBFloat16 ? at::kFloat : own;
}

/// [1, C, 1, ...] of [C], to be combined with an input of `dims` dimensions.
Tensor per_channel(const Tensor& values, std::int64_t dims) {
  std::vector<std::int64_t> shape(static_cast<std::size_t>(dims), 1);
  shape[1] = values.numel();
  return values.view(shape);
}

}  // namespace

void check_batch_norm_input(const Tensor& input, std::int64_t least, std::int64_t most) {
  if (input.dim() >= least && input.dim() <= most) return;
  throw InvalidUsage(fmt::format(
      "SyncBatchNorm: the input has shape {}; it takes {} dimensions", tensor::shape_text(input),
      least == most ? fmt::to_string(least) : fmt::format("{} or {}", least, most)));
}

Tensor sync_batch_norm(const Tensor& input, const torch::nn::BatchNormOptions& options,
                       bool training, const Tensor& weight, const Tensor& bias,
                       Tensor& running_mean, Tensor& running_var, Tensor& num_batches_tracked) {
  if (!training && running_mean.defined()) {
    return at::batch_norm(input, weight, bias, running_mean, running_var, /*training=*/false,
                          /*momentum=*/0, options.eps(), /*cudnn_enabled=*/false);
  }
  const std::int64_t channels = options.num_features();
  if (input.size(1) != channels) {
    throw InvalidUsage(fmt::format("SyncBatchNorm: the input has shape {}; it has {} features",
                                   tensor::shape_text(input), channels));
  }
  const at::ScalarType wide = summed_in(input);
  std::vector<std::int64_t> counted = {0};
  for (std::int64_t d = 2; d < input.dim(); ++d) counted.push_back(d);
  const std::int64_t own_rows = channels == 0 ? 0 : input.numel() / channels;

  // Two passes: the squares of differences from the mean keep their digits where those of the
  // values themselves would cancel.
  const Tensor values = input.to(wide);
  const Tensor rows = at::full({1}, own_rows, values.options());
  const Tensor sums = over_replicas(at::cat({values.sum(counted), rows}));
  const Tensor rows_everywhere = sums.narrow(0, channels, 1).detach();
  const Tensor count = rows_everywhere.clamp_min(1);  // no rows at all: nothing to divide
  const Tensor mean = sums.narrow(0, 0, channels) / count;
  const Tensor centred = values - per_channel(mean, input.dim());
  const Tensor variance = over_replicas(centred.pow(2).sum(counted)) / count;

  if (training && running_mean.defined() && rows_everywhere.item<double>() > 0) {
    const at::NoGradGuard not_recorded;
    num_batches_tracked.add_(1);
    const double factor = options.momentum()
                              ? *options.momentum()
                              : 1.0 / static_cast<double>(num_batches_tracked.item<std::int64_t>());
    // The running variance is the unbiased one, as torch::nn::BatchNorm's.
    const Tensor unbiased = variance * (count / (count - 1).clamp_min(1));
    running_mean.mul_(1 - factor).add_(mean, factor);
    running_var.mul_(1 - factor).add_(unbiased, factor);
  }
  Tensor output = centred * per_channel(at::rsqrt(variance + options.eps()), input.dim());
  if (weight.defined()) output = output * per_channel(weight, input.dim());
  if (bias.defined()) output = output + per_channel(bias, input.dim());
  return output.to(input.scalar_type());
}

}  // namespace lockstep::detail
