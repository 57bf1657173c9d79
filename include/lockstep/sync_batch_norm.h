// SyncBatchNorm: batch normalisation over the rows of all replicas of all workers.
//
//   torch::nn::Sequential net(torch::nn::Conv2d(...), SyncBatchNorm2d(16), torch::nn::ReLU());
//
// In training, mean and variance are those of the whole batch: the replicas may have different
// numbers of rows, or none. Gradients flow through the statistics, as they do in one replica with
// all rows; second derivatives, too. In evaluation, with one replica, and outside of a strategy, it
// is torch::nn::BatchNorm. Otherwise all replicas meet once in the forward pass and once in the
// backward pass, so both belong inside the step function; backward anywhere else is InvalidUsage.
// Options, names of parameters and buffers are torch::nn::BatchNorm's, so checkpoints fit.
#pragma once

// clang-format off
#include "lockstep/tensor.h"  // before libtorch's own
// clang-format on
#include <torch/nn/cloneable.h>
#include <torch/nn/modules/batchnorm.h>

namespace lockstep {

namespace detail {
/// Channels are dimension 1; every other one is counted.
Tensor sync_batch_norm(const Tensor& input, const torch::nn::BatchNormOptions& options,
                       bool training, const Tensor& weight, const Tensor& bias,
                       Tensor& running_mean, Tensor& running_var, Tensor& num_batches_tracked);
/// InvalidUsage for another number of dimensions.
void check_batch_norm_input(const Tensor& input, std::int64_t least, std::int64_t most);
}  // namespace detail

/// The base of both; `Self` is the module, for clone(), `dims` its number of spatial dimensions.
template <std::size_t dims, class Self>
class SyncBatchNormImpl : public torch::nn::NormImplBase<dims, Self, torch::nn::BatchNormOptions> {
  using Base = torch::nn::NormImplBase<dims, Self, torch::nn::BatchNormOptions>;

 public:
  explicit SyncBatchNormImpl(std::int64_t features)
      : SyncBatchNormImpl(torch::nn::BatchNormOptions(features)) {}
  explicit SyncBatchNormImpl(const torch::nn::BatchNormOptions& its_options) : Base(its_options) {}

  Tensor forward(const Tensor& input) {
    _check_input_dim(input);
    return detail::sync_batch_norm(input, this->options, this->is_training(), this->weight,
                                   this->bias, this->running_mean, this->running_var,
                                   this->num_batches_tracked);
  }

 protected:
  void _check_input_dim(const Tensor& input) override {
    // Rows of features may have a length; images have a height and a width.
    detail::check_batch_norm_input(input, dims == 1 ? 2 : 4, dims == 1 ? 3 : 4);
  }
};

class SyncBatchNorm1dImpl : public SyncBatchNormImpl<1, SyncBatchNorm1dImpl> {
 public:
  using SyncBatchNormImpl::SyncBatchNormImpl;
};
TORCH_MODULE(SyncBatchNorm1d);

class SyncBatchNorm2dImpl : public SyncBatchNormImpl<2, SyncBatchNorm2dImpl> {
 public:
  using SyncBatchNormImpl::SyncBatchNormImpl;
};
TORCH_MODULE(SyncBatchNorm2d);

}  // namespace lockstep
