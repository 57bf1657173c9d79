#include "tensor/reduce.h"

#include <ATen/ops/_sparse_coo_tensor_unsafe.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/view_as_real.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cassert>

#include "base/status.h"
#include "kernel/reduce.h"
#include "tensor/dtype.h"

namespace lockstep::tensor {
namespace {

constexpr std::size_t kLine = 64;
// Below this a worker costs more to wake than it saves.
constexpr std::size_t kMinPieceBytes = std::size_t{64} << 10;

std::string describe(const Tensor& tensor) {
  return fmt::format("{}{} [{}]", tensor.is_sparse() ? "sparse " : "",
                     c10::toString(tensor.scalar_type()), fmt::join(tensor.sizes(), ", "));
}

enum class Layouts : std::uint8_t { dense, any };

Op op_of(Combine combine) {
  switch (combine) {
    case Combine::mean:
      return Op::mean;
    case Combine::max:
      return Op::max;
    case Combine::min:
      return Op::min;
    case Combine::sum:
      break;
  }
  return Op::sum;
}

// The components agree and can be combined.
DType check_components(Combine combine, const std::vector<Tensor>& components, Layouts layouts) {
  if (components.empty()) throw InvalidUsage("a reduction of no components");
  for (std::size_t i = 0; i < components.size(); ++i) {
    const Tensor& tensor = components[i];
    if (!tensor.defined()) {
      throw InvalidUsage(fmt::format("component {} of a reduction is an undefined tensor", i));
    }
    const bool layout_ok = tensor.layout() == c10::kStrided ||
                           (layouts == Layouts::any && tensor.layout() == c10::kSparse);
    if (!layout_ok || !tensor.device().is_cpu()) {
      throw Unsupported(fmt::format(
          "component {} of a reduction is {} on {}; {} tensors on the CPU can be added here", i,
          describe(tensor), tensor.device().str(),
          layouts == Layouts::any ? "dense and sparse COO" : "dense"));
    }
    const Tensor& first = components.front();
    if (tensor.sizes() != first.sizes() || tensor.scalar_type() != first.scalar_type()) {
      throw InvalidUsage(
          fmt::format("component {} of a reduction is {}, component 0 is {}: all components must "
                      "have the same shape and dtype",
                      i, describe(tensor), describe(first)));
    }
  }
  const DType dtype = to_dtype(components.front().scalar_type());
  // A mean begins with the sum; that of integers ends differently.
  raise_if_error(
      kernel::check_supported(combine == Combine::mean ? Op::sum : op_of(combine), dtype));
  return dtype;
}

// Whether element i of both lies at the same place. The stride of an axis of one is never used.
bool same_strides(const Tensor& a, const Tensor& b) {
  for (std::int64_t axis = 0; axis < a.dim(); ++axis) {
    if (a.size(axis) > 1 && a.stride(axis) != b.stride(axis)) return false;
  }
  return true;
}

// The values of `tensor` in memory laid out as `like`, copied only if they are not so already.
Tensor laid_out(const Tensor& tensor, const Tensor& like) {
  if (same_strides(tensor, like) && !tensor.is_conj() && !tensor.is_neg()) return tensor;
  return at::empty_strided(like.sizes(), like.strides(), tensor.options()).copy_(tensor.detach());
}

at::ScalarType result_type(Combine combine, DType dtype) {
  return to_scalar_type(combine == Combine::mean ? mean_dtype(dtype) : dtype);
}

// ---- The mean of integers

constexpr std::size_t kBlock = 1024;

template <class T, class R>
void mean_of(const std::vector<Tensor>& inputs, const std::vector<Tensor>& outputs,
             std::size_t begin, std::size_t end) {
  const auto divisor = static_cast<double>(inputs.size());
  std::array<std::uint64_t, kBlock> sums;  // int64 that may wrap
  std::array<R, kBlock> means;
  for (; begin < end; begin += kBlock) {
    const std::size_t count = std::min(kBlock, end - begin);
    std::fill_n(sums.begin(), count, 0);
    for (const Tensor& input : inputs) {
      const T* values = static_cast<const T*>(input.data_ptr()) + begin;
      for (std::size_t i = 0; i < count; ++i) {
        sums[i] += static_cast<std::uint64_t>(static_cast<std::int64_t>(values[i]));
      }
    }
    // Double, then float: of numbers this small the float quotient, rounded once.
    for (std::size_t i = 0; i < count; ++i) {
      const auto sum = static_cast<double>(static_cast<std::int64_t>(sums[i]));
      means[i] = static_cast<R>(sum / divisor);
    }
    for (const Tensor& output : outputs) {
      std::copy_n(means.begin(), count, static_cast<R*>(output.data_ptr()) + begin);
    }
  }
}

void integer_mean(DType dtype, const std::vector<Tensor>& inputs,
                  const std::vector<Tensor>& outputs, std::size_t begin, std::size_t end) {
  switch (dtype) {
    case DType::int8:
      return mean_of<std::int8_t, float>(inputs, outputs, begin, end);
    case DType::uint8:
      return mean_of<std::uint8_t, float>(inputs, outputs, begin, end);
    case DType::int16:
      return mean_of<std::int16_t, float>(inputs, outputs, begin, end);
    case DType::int32:
      return mean_of<std::int32_t, double>(inputs, outputs, begin, end);
    default:
      assert(dtype == DType::int64);
      return mean_of<std::int64_t, double>(inputs, outputs, begin, end);
  }
}

}  // namespace

ReduceJob make_job(Combine combine, std::vector<Tensor> inputs, int copies, ResultMemory& memory) {
  const DType dtype = check_components(combine, inputs, Layouts::dense);
  std::vector<Tensor> outputs;
  for (int i = 0; i < copies; ++i) {
    outputs.push_back(memory.empty_like(inputs.front(), result_type(combine, dtype)));
  }
  for (Tensor& input : inputs) input = laid_out(input, outputs.front());
  return {std::move(inputs), std::move(outputs), combine};
}

void check_dense(Combine combine, const std::vector<Tensor>& components) {
  check_components(combine, components, Layouts::dense);
}

BatchReduce::BatchReduce(const std::vector<ReduceJob>& jobs) {
  jobs_.reserve(jobs.size());
  for (const ReduceJob& job : jobs) {
    jobs_.push_back(prepare(job));
    jobs_.back().first_byte = bytes_;
    bytes_ += jobs_.back().count * jobs_.back().element_bytes;
  }
}

BatchReduce::Prepared BatchReduce::prepare(const ReduceJob& job) {
  const DType dtype = check_components(job.combine, job.inputs, Layouts::dense);
  const at::ScalarType wanted = result_type(job.combine, dtype);
  Prepared prepared = {.inputs = {},
                       .outputs = job.outputs,
                       .merges = kernel::tree_merges(static_cast<int>(job.inputs.size())),
                       .combine = job.combine,
                       .dtype = dtype,
                       .count = static_cast<std::size_t>(job.inputs.front().numel()),
                       .element_bytes = job.inputs.size() * size_of(dtype) +
                                        job.outputs.size() * c10::elementSize(wanted)};
  if (job.outputs.empty()) throw InvalidUsage("a reduction without outputs");
  for (std::size_t i = 0; i < job.outputs.size(); ++i) {
    const Tensor& output = job.outputs[i];
    if (!output.defined() || output.scalar_type() != wanted ||
        output.sizes() != job.inputs.front().sizes() || !output.is_non_overlapping_and_dense() ||
        output.is_conj() || output.is_neg() || !same_strides(output, job.outputs.front())) {
      throw InvalidUsage(
          fmt::format("output {} of a reduction is {}, wanted {} [{}] in dense memory laid out as "
                      "output 0",
                      i, output.defined() ? describe(output) : "undefined", c10::toString(wanted),
                      fmt::join(job.inputs.front().sizes(), ", ")));
    }
  }
  for (const Tensor& input : job.inputs) {
    prepared.inputs.push_back(laid_out(input, job.outputs.front()));
  }
  return prepared;
}

int BatchReduce::pieces(int workers) const noexcept {
  const auto worth = static_cast<int>(std::min<std::size_t>(bytes_ / kMinPieceBytes, 1 << 20));
  return std::clamp(worth, 1, std::max(workers, 1));
}

std::size_t BatchReduce::cut(const Prepared& job, std::size_t byte) noexcept {
  if (byte <= job.first_byte) return 0;
  const std::size_t element = (byte - job.first_byte) / job.element_bytes;
  const std::size_t line = kLine / size_of(job.dtype);
  return element >= job.count ? job.count : element / line * line;
}

void BatchReduce::run_piece(int piece, int pieces) const {
  assert(piece >= 0 && piece < pieces);
  // In this order nothing overflows; the remainder is the last piece's.
  const std::size_t share = bytes_ / static_cast<std::size_t>(pieces);
  const std::size_t begin = share * static_cast<std::size_t>(piece);
  const std::size_t end = piece + 1 == pieces ? bytes_ : begin + share;
  for (const Prepared& job : jobs_) {
    const std::size_t from = cut(job, begin);
    const std::size_t to = cut(job, end);
    if (from < to) run_range(job, from, to);
  }
}

void BatchReduce::run_range(const Prepared& job, std::size_t begin, std::size_t end) const {
  if (job.combine == Combine::mean && is_integer(job.dtype)) {
    integer_mean(job.dtype, job.inputs, job.outputs, begin, end);
    return;
  }
  const std::size_t offset = begin * size_of(job.dtype);
  std::vector<kernel::Input> inputs;
  std::vector<kernel::Target> targets;
  inputs.reserve(job.inputs.size());
  targets.reserve(job.outputs.size());
  for (const Tensor& input : job.inputs) {
    inputs.push_back({static_cast<const std::byte*>(input.data_ptr()) + offset});
  }
  for (const Tensor& output : job.outputs) {
    targets.push_back({static_cast<std::byte*>(output.data_ptr()) + offset});
  }
  kernel::reduce(
      {.op = op_of(job.combine),
       .dtype = job.dtype,
       .inputs = inputs,
       .merges = job.merges,
       .targets = targets,
       .count = end - begin,
       .divisor = job.combine == Combine::mean ? static_cast<double>(job.inputs.size()) : 1.0,
       .batch_bytes = bytes_});
}

bool any_sparse(const std::vector<Tensor>& tensors) {
  return std::any_of(tensors.begin(), tensors.end(), [](const Tensor& t) { return t.is_sparse(); });
}

bool all_sparse(const std::vector<Tensor>& tensors) {
  return std::all_of(tensors.begin(), tensors.end(), [](const Tensor& t) { return t.is_sparse(); });
}

Tensor mean_of_sum(const Tensor& sum, std::int64_t count) {
  const DType dtype = to_dtype(sum.scalar_type());
  // A copy in any case: the sum may be somebody's.
  Tensor mean = sum.detach().to(result_type(Combine::mean, dtype), /*non_blocking=*/false,
                                /*copy=*/true);
  Tensor parts = is_complex(dtype) ? at::view_as_real(mean) : mean;
  parts.div_(static_cast<double>(count));
  return mean;
}

Tensor reduce_dense(Combine combine, std::vector<Tensor> components) {
  ResultMemory memory;
  const ReduceJob job = make_job(combine, std::move(components), 1, memory);
  BatchReduce({job}).run();
  return job.outputs.front();
}

Tensor reduce_sparse(Combine combine, const std::vector<Tensor>& components) {
  check_components(combine, components, Layouts::any);
  if (combine == Combine::max || combine == Combine::min) {
    throw Unsupported("the maximum or minimum of sparse tensors; make them dense with to_dense()");
  }
  const c10::AutoGradMode no_grad(false);
  if (!all_sparse(components)) {
    std::vector<Tensor> dense;
    for (const Tensor& component : components) {
      dense.push_back(component.is_sparse() ? component.to_dense() : component);
    }
    return reduce_dense(combine, std::move(dense));
  }
  std::vector<Tensor> indices;
  std::vector<Tensor> values;
  for (std::size_t i = 0; i < components.size(); ++i) {
    const Tensor& component = components[i];
    if (component.sparse_dim() != components.front().sparse_dim()) {
      throw InvalidUsage(
          fmt::format("component {} of a sparse reduction has {} sparse axes, component 0 has {}: "
                      "all must have the same number",
                      i, component.sparse_dim(), components.front().sparse_dim()));
    }
    const Tensor merged = component.coalesce();
    indices.push_back(merged._indices());
    values.push_back(merged._values().detach());
  }
  Tensor all = at::cat(values, 0);
  if (combine == Combine::mean) {
    all = mean_of_sum(all, static_cast<std::int64_t>(components.size()));
  }
  return at::_sparse_coo_tensor_unsafe(at::cat(indices, 1), all, components.front().sizes());
}

}  // namespace lockstep::tensor
