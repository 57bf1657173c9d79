#include "lockstep/sync_batch_norm.h"

#include <ATen/ops/batch_norm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/stack.h>
#include <c10/core/GradMode.h>
#include <c10/util/accumulate.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <cmath>

#include "kernel/batch_norm.h"
#include "lockstep/context.h"
#include "lockstep/error.h"
#include "lockstep/strategy.h"
#include "strategy/core.h"
#include "strategy/node_replica.h"
#include "tensor/parts.h"
#include "tensor/reduce.h"
#include "tensor/torch_text.h"

namespace lockstep::detail {

namespace {

using kernel::ChannelShape;
using kernel::GradientSums;
using kernel::Moments;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr const char* kSyncBatchNorm = "SyncBatchNorm";

/// Sums over a batch do not fit 16 bits.
at::ScalarType summed_in(const Tensor& input) {
  const at::ScalarType own = input.scalar_type();
  return own == at::kHalf || own == at::kBFloat16 ? at::kFloat : own;
}

/// Dense, with the channels second or last.
Tensor dense(const Tensor& input) { return input.contiguous(input.suggest_memory_format()); }

ChannelShape shape_of(const Tensor& input) {
  const auto rows = static_cast<std::size_t>(input.size(0));
  const auto channels = static_cast<std::size_t>(input.size(1));
  const auto inner = static_cast<std::size_t>(c10::multiply_integers(input.sizes().slice(2)));
  if (input.is_contiguous()) return {rows, channels, inner};
  return {rows * inner, channels, 1};
}

// Structs of doubles as rows of a tensor, which can travel.

template <class Row>
Tensor rows_for(std::size_t channels) {
  return at::empty({static_cast<std::int64_t>(channels),
                    static_cast<std::int64_t>(sizeof(Row) / sizeof(double))},
                   at::kDouble);
}
template <class Row>
Row* rows_of(const Tensor& tensor) {
  static_assert(sizeof(Row) % sizeof(double) == 0 && alignof(Row) == alignof(double));
  return reinterpret_cast<Row*>(tensor.data_ptr<double>());
}

Tensor own_moments(const Tensor& input) {
  const ChannelShape shape = shape_of(input);
  Tensor moments = rows_for<Moments>(shape.channels);
  if (input.scalar_type() == at::kDouble) {
    kernel::channel_moments(input.data_ptr<double>(), shape, rows_of<Moments>(moments));
  } else {
    kernel::channel_moments(input.data_ptr<float>(), shape, rows_of<Moments>(moments));
  }
  return moments;
}

/// The moments of all replicas, added up in replica order whatever the layout.
Tensor moments_of_all(ReplicaContext& replica, const Tensor& own) {
  // A line of the program is not known: modules are called by other modules.
  const Verb verb(kSyncBatchNorm, Here{});
  return replica.merge_at(
      Here{},
      [](Strategy& strategy, const PerReplica<Tensor>& each) {
        const std::vector<Tensor> local = local_results(each);
        tensor::check_dense(tensor::Combine::sum, local);
        const Tensor stacked = at::stack(local);
        Workers* const workers = strategy.core().workers();
        const std::vector<Tensor> parts =
            workers != nullptr ? workers->gather(stacked, "moments") : std::vector<Tensor>{stacked};
        const auto channels = static_cast<std::size_t>(local[0].size(0));
        Tensor total = rows_for<Moments>(channels);
        Moments* const sums = rows_of<Moments>(total);
        std::fill_n(sums, channels, Moments());
        for (const Tensor& part : parts) {
          for (const Tensor& one : part.unbind(0)) {
            for (std::size_t c = 0; c < channels; ++c) sums[c].add(rows_of<Moments>(one)[c]);
          }
        }
        return total;
      },
      own);
}

/// What the statistics of all rows mean for a channel.
struct Channel {
  double rows;  // at least 1: without any there is nothing to divide
  double mean;
  double inverse_deviation;

  Channel(const Moments& moments, double epsilon)
      : rows(std::max(moments.count, 1.0)),
        mean(moments.mean),
        inverse_deviation(1 / std::sqrt(moments.squares / rows + epsilon)) {}
};

std::vector<double> numbers_of(const Tensor& values, std::size_t channels, double otherwise) {
  if (!values.defined()) return std::vector<double>(channels, otherwise);
  const Tensor wide = values.to(at::kDouble).contiguous();
  return {wide.data_ptr<double>(), wide.data_ptr<double>() + channels};
}

/// Calls work(first, rows) for parts of the outer rows of `shape`, on the threads of the replica.
/// Each element of a result is computed by itself, so the bits do not depend on the parts.
void in_parts_of_rows(const Tensor& values, const ChannelShape& shape,
                      FunctionRef<void(std::size_t first, const ChannelShape& rows)> work) {
  const std::size_t row = shape.channels * shape.inner;
  if (row == 0) return;
  tensor::in_parts(values, [&](std::size_t begin, std::size_t end) {
    // A row belongs to the part that has its first element.
    const std::size_t first = (begin + row - 1) / row;
    const std::size_t past = (end + row - 1) / row;
    if (first < past) work(first * row, {past - first, shape.channels, shape.inner});
  });
}

// Kernels subtract a mean in the values' own type. What it differs by from the true one goes into
// the number that is added.

template <class T>
Tensor normalized(const Tensor& input, const Moments* moments, const Tensor& weight,
                  const Tensor& bias, double epsilon) {
  const ChannelShape shape = shape_of(input);
  const std::vector<double> weights = numbers_of(weight, shape.channels, 1);
  const std::vector<double> biases = numbers_of(bias, shape.channels, 0);
  std::vector<T> centre(shape.channels), scale(shape.channels), shift(shape.channels);
  for (std::size_t c = 0; c < shape.channels; ++c) {
    const Channel channel(moments[c], epsilon);
    const double factor = weights[c] * channel.inverse_deviation;
    centre[c] = static_cast<T>(channel.mean);
    scale[c] = static_cast<T>(factor);
    shift[c] = static_cast<T>(biases[c] + (centre[c] - channel.mean) * factor);
  }
  Tensor output = at::empty_like(input);
  const kernel::NormalizeFactors<T> factors{centre.data(), scale.data(), shift.data()};
  const T* const from = input.data_ptr<T>();
  T* const to = output.data_ptr<T>();
  in_parts_of_rows(input, shape, [&](std::size_t first, const ChannelShape& rows) {
    kernel::normalize(from + first, rows, factors, to + first);
  });
  return output;
}

/// One backward pass without a graph of its own: two passes over memory, one meeting.
template <class T>
class Backward {
 public:
  Backward(const Tensor& input, const Moments* moments, const Tensor& gradient, double epsilon)
      : shape_(shape_of(input)),
        moments_(moments),
        epsilon_(epsilon),
        input_(input),
        memory_{input.data_ptr<T>(), gradient.data_ptr<T>()},
        centre_(shape_.channels),
        sums_(rows_for<GradientSums>(shape_.channels)) {
    for (std::size_t c = 0; c < shape_.channels; ++c) {
      centre_[c] = static_cast<T>(moments[c].mean);
    }
    GradientSums* const sums = rows_of<GradientSums>(sums_);
    kernel::channel_gradient_sums(memory_, shape_, centre_.data(), sums);
    for (std::size_t c = 0; c < shape_.channels; ++c) {
      sums[c].products += (centre_[c] - moments[c].mean) * sums[c].gradients;
    }
  }

  /// Of this replica's rows.
  [[nodiscard]] const Tensor& own_sums() const noexcept { return sums_; }

  [[nodiscard]] Tensor of_weight(at::ScalarType dtype) const {
    Tensor result = at::empty({static_cast<std::int64_t>(shape_.channels)}, at::kDouble);
    for (std::size_t c = 0; c < shape_.channels; ++c) {
      result.data_ptr<double>()[c] = rows_of<GradientSums>(sums_)[c].products *
                                     Channel(moments_[c], epsilon_).inverse_deviation;
    }
    return result.to(dtype);
  }
  [[nodiscard]] Tensor of_bias(at::ScalarType dtype) const {
    return sums_.select(1, 0).to(dtype, /*non_blocking=*/false, /*copy=*/true);
  }
  /// `all_sums` are those of all replicas.
  [[nodiscard]] Tensor of_input(const Tensor& all_sums, const Tensor& weight) const {
    const std::vector<double> weights = numbers_of(weight, shape_.channels, 1);
    std::vector<T> of_gradient(shape_.channels), of_value(shape_.channels), shift(shape_.channels);
    for (std::size_t c = 0; c < shape_.channels; ++c) {
      const Channel channel(moments_[c], epsilon_);
      const GradientSums& sums = rows_of<GradientSums>(all_sums)[c];
      const double scale = weights[c] * channel.inverse_deviation;
      const double slope = -scale * channel.inverse_deviation * channel.inverse_deviation *
                           sums.products / channel.rows;
      of_gradient[c] = static_cast<T>(scale);
      of_value[c] = static_cast<T>(slope);
      shift[c] = static_cast<T>(slope * (centre_[c] - channel.mean) -
                                scale * sums.gradients / channel.rows);
    }
    Tensor result = at::empty_like(input_);
    const kernel::GradientFactors<T> factors{centre_.data(), of_gradient.data(), of_value.data(),
                                             shift.data()};
    T* const to = result.data_ptr<T>();
    in_parts_of_rows(input_, shape_, [&](std::size_t first, const ChannelShape& rows) {
      const kernel::GradientMemory<T> part{memory_.values + first, memory_.gradients + first};
      kernel::input_gradient(part, rows, factors, to + first);
    });
    return result;
  }

 private:
  ChannelShape shape_;
  const Moments* moments_;
  double epsilon_;
  const Tensor& input_;
  kernel::GradientMemory<T> memory_;
  std::vector<T> centre_;
  Tensor sums_;
};

/// Summed over all replicas; as it is if there is only one. Differentiable.
Tensor summed(const NodeReplica& node, const Tensor& own) {
  ReplicaContext* const replica = node.context();
  if (replica == nullptr) return own;
  const Verb verb(kSyncBatchNorm, node.here());
  return all_reduce_tensors(*replica, ReduceOp::sum, {own}, node.here()).front();
}

/// What is given for input, weight and bias.
struct Gradients {
  Tensor input, weight, bias;
};

/// What backward has to work with.
struct Saved {
  Tensor input, weight, moments;
  double epsilon;
  bool input_wanted;
};

template <class T>
Gradients fast_backward(const Saved& saved, const Tensor& gradient, const NodeReplica& node) {
  const Moments* const moments = rows_of<Moments>(saved.moments);
  // Laid out as the input.
  const Tensor same = gradient.contiguous(
      saved.input.is_contiguous() ? at::MemoryFormat::Contiguous : at::MemoryFormat::ChannelsLast);
  const Backward<T> backward(saved.input, moments, same, saved.epsilon);
  Gradients result;
  if (saved.input_wanted) {
    result.input = backward.of_input(summed(node, backward.own_sums()), saved.weight);
  }
  result.weight = backward.of_weight(saved.input.scalar_type());
  result.bias = backward.of_bias(saved.input.scalar_type());
  return result;
}

/// [1, C, 1, ...] of [C], to be combined with an input of `dims` dimensions.
Tensor per_channel(const Tensor& values, std::int64_t dims) {
  std::vector<std::int64_t> shape(static_cast<std::size_t>(dims), 1);
  shape[1] = values.numel();
  return values.view(shape);
}

/// The same as a formula of differentiable operations, for graphs of the backward pass: here mean
/// and variance are functions of the input. Deviations are taken from the known mean, so that all
/// sums can be made at once, in one meeting. They are sums of doubles, as in fast_backward().
Gradients recorded_backward(const Saved& saved, const Tensor& gradient, const NodeReplica& node) {
  const Tensor& input = saved.input;
  const std::int64_t dims = input.dim();
  const std::int64_t channels = input.size(1);
  std::vector<std::int64_t> counted = {0};
  for (std::int64_t d = 2; d < dims; ++d) counted.push_back(d);
  const at::ScalarType dtype = input.scalar_type();
  const auto spread = [&](const Tensor& values) { return per_channel(values.to(dtype), dims); };
  const auto sum = [&](const Tensor& values) {
    return values.sum(counted, /*keepdim=*/false, at::kDouble);
  };
  const Tensor known_mean = saved.moments.select(1, 1);
  const double rows = channels == 0 ? 1 : std::max(rows_of<Moments>(saved.moments)->count, 1.0);

  const Tensor around = input - spread(known_mean);
  const Tensor own =
      at::stack({sum(around), sum(around * around), sum(gradient), sum(gradient * around)});
  if (!saved.input_wanted) {
    // The statistics are constants, too.
    const Tensor known_variance = saved.moments.select(1, 2) / rows;
    const Tensor of_weight = own[3] * at::rsqrt(known_variance + saved.epsilon);
    return {Tensor(), of_weight.to(dtype), own[2].to(dtype)};
  }
  const Tensor all = summed(node, own);
  const Tensor shift = all[0] / rows;
  const Tensor inverse = at::rsqrt(all[1] / rows - shift * shift + saved.epsilon);

  Gradients result;
  result.bias = own[2].to(dtype);
  result.weight = ((own[3] - shift * own[2]) * inverse).to(dtype);
  const Tensor products = (all[3] - shift * all[2]) * inverse * inverse;
  const Tensor scale = saved.weight.defined() ? inverse * saved.weight : inverse;
  const Tensor rest = spread(all[2] / rows) + (around - spread(shift)) * spread(products / rows);
  result.input = (gradient - rest) * spread(scale);
  return result;
}

struct SyncBatchNormFunction : torch::autograd::Function<SyncBatchNormFunction> {
  static Tensor forward(AutogradContext* context, const Tensor& input,
                        const c10::optional<Tensor>& weight, const c10::optional<Tensor>& bias,
                        const Tensor& moments, double epsilon, const ReplicaContext* replica) {
    NodeReplica::save(context, *replica, kSyncBatchNorm, Here{});
    context->saved_data["epsilon"] = epsilon;
    context->saved_data["input_wanted"] = input.requires_grad();
    context->saved_data["has_bias"] = bias.has_value();
    context->save_for_backward({input, weight.value_or(Tensor()), moments});
    const auto with = input.scalar_type() == at::kDouble ? normalized<double> : normalized<float>;
    return with(input, rows_of<Moments>(moments), weight.value_or(Tensor()),
                bias.value_or(Tensor()), epsilon);
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const auto node = NodeReplica::of(context);
    const variable_list variables = context->get_saved_variables();
    const Saved saved{.input = variables[0],
                      .weight = variables[1],
                      .moments = variables[2],
                      .epsilon = context->saved_data["epsilon"].toDouble(),
                      .input_wanted = context->saved_data["input_wanted"].toBool()};
    const auto with = at::GradMode::is_enabled()                 ? recorded_backward
                      : saved.input.scalar_type() == at::kDouble ? fast_backward<double>
                                                                 : fast_backward<float>;
    Gradients result = with(saved, gradients[0], *node);
    if (!saved.weight.defined()) result.weight = Tensor();
    if (!context->saved_data["has_bias"].toBool()) result.bias = Tensor();
    return {result.input, result.weight, result.bias, Tensor(), Tensor(), Tensor()};
  }
};

c10::optional<Tensor> optional_in(at::ScalarType dtype, const Tensor& tensor) {
  return tensor.defined() ? c10::optional<Tensor>(tensor.to(dtype)) : c10::nullopt;
}

/// Counts one more batch; the share of its statistics in the running ones.
double next_share(const torch::nn::BatchNormOptions& options, Tensor& num_batches_tracked) {
  const at::NoGradGuard not_recorded;
  num_batches_tracked.add_(1);
  return options.momentum() ? *options.momentum()
                            : 1.0 / static_cast<double>(num_batches_tracked.item<std::int64_t>());
}

void update_running(const Tensor& moments, double share, Tensor& running_mean,
                    Tensor& running_var) {
  const double rows = rows_of<Moments>(moments)->count;
  // The running variance is the unbiased one, as torch::nn::BatchNorm's.
  running_mean.mul_(1 - share).add_(moments.select(1, 1), share);
  running_var.mul_(1 - share).add_(moments.select(1, 2), share / std::max(rows - 1, 1.0));
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
  if (!input.is_floating_point()) {
    throw InvalidUsage(fmt::format("SyncBatchNorm: the input is of {}; it takes floating point",
                                   c10::toString(input.scalar_type())));
  }
  if (!input.is_cpu()) throw Unsupported("SyncBatchNorm of a tensor that is not on a CPU");
  const at::ScalarType wide = summed_in(input);
  const Tensor values = dense(input.to(wide));
  ReplicaContext* const replica = get_replica_context();
  const bool alone = replica == nullptr || replica->num_replicas_in_sync() == 1;

  const auto fits = [&](const Tensor& own) { return !own.defined() || own.scalar_type() == wide; };
  if (alone && input.numel() > channels && fits(weight) && fits(bias) && fits(running_mean)) {
    // Nothing to exchange: torch's own, which uses all threads the replica has. Of a single row it
    // would give a running variance that is no number.
    const bool counts = training && running_mean.defined();
    const double share = counts ? next_share(options, num_batches_tracked) : 0;
    return at::batch_norm(values, weight, bias, counts ? running_mean : Tensor(),
                          counts ? running_var : Tensor(), /*training=*/true, share, options.eps(),
                          /*cudnn_enabled=*/false)
        .to(input.scalar_type());
  }

  const Tensor own = own_moments(values);
  const Tensor moments = alone ? own : moments_of_all(*replica, own);
  if (training && running_mean.defined() && channels > 0 && rows_of<Moments>(moments)->count > 0) {
    const at::NoGradGuard not_recorded;
    update_running(moments, next_share(options, num_batches_tracked), running_mean, running_var);
  }
  return SyncBatchNormFunction::apply(values, optional_in(wide, weight), optional_in(wide, bias),
                                      moments, options.eps(), alone ? &default_replica() : replica)
      .to(input.scalar_type());
}

}  // namespace lockstep::detail
