#include "lockstep/collective_all_reduce.h"

#include <ATen/ops/_sparse_coo_tensor_unsafe.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <c10/util/accumulate.h>
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>

#include "base/log.h"
#include "lockstep/coll/batch.h"
#include "strategy/core.h"
#include "strategy/cross_device/collective_keys.h"
#include "strategy/cross_device/packing.h"
#include "tensor/dtype.h"
#include "tensor/reduce.h"
#include "tensor/torch_text.h"

namespace lockstep {

namespace {

using std::chrono::nanoseconds;
using std::chrono::steady_clock;

coll::Buffer buffer_of(const Tensor& dense) {
  return {tensor::to_dtype(dense.scalar_type()), dense.data_ptr(),
          static_cast<std::size_t>(dense.numel())};
}

/// What every worker must agree on besides the length of the first axis.
std::int64_t fingerprint(const Tensor& rows) {
  std::uint64_t hash = 14695981039346656037U;
  const auto mix = [&](std::int64_t number) {
    hash = (hash ^ static_cast<std::uint64_t>(number)) * 1099511628211U;
  };
  mix(static_cast<std::int64_t>(rows.scalar_type()));
  for (std::int64_t axis = 1; axis < rows.dim(); ++axis) mix(rows.size(axis));
  return static_cast<std::int64_t>(hash);
}

/// One dense value on its way.
struct DenseValue {
  std::size_t pair;
  std::vector<Tensor> inputs;  // contiguous, one a local device
  Tensor sum = {};             // or the mean; contiguous
  bool divide = false;         // the sum is one of integers whose mean is wanted
};

/// Operations under way. Their memory may not go before they are over, whatever happens here.
class Works {
 public:
  Works() = default;
  ~Works() {
    for (coll::Work& work : works_) {
      try {
        work.wait();
      } catch (...) {  // whoever made us go has thrown already
      }
    }
  }
  Works(const Works&) = delete;
  Works& operator=(const Works&) = delete;

  void add(coll::Work work) { works_.push_back(std::move(work)); }
  void keep(const Tensor& memory) { memory_.push_back(memory); }
  void wait() {
    for (coll::Work& work : works_) work.wait();
    works_.clear();
  }

 private:
  std::vector<Tensor> memory_;
  std::vector<coll::Work> works_;
};

/// Of contiguous tensors with the same number of bytes.
void copy_bytes(const Tensor& from, const Tensor& to) {
  if (from.nbytes() > 0) std::memcpy(to.data_ptr(), from.data_ptr(), from.nbytes());
}

/// Elements [begin, begin + like.numel()) of a flat tensor, in another's shape.
Tensor part_of(const Tensor& flat, std::int64_t begin, const Tensor& like) {
  return flat.narrow(0, begin, like.numel()).view(like.sizes());
}

/// The first destination takes the result itself, the others copies: all lanes make a part of them.
std::vector<Mirrored<Tensor>> copied_to_destinations(std::span<const ReducePair> pairs,
                                                     const std::vector<Tensor>& reduced) {
  detail::StrategyCore& core = detail::current_core();
  std::vector<std::vector<Tensor>> copies(pairs.size());
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    const std::size_t devices = pairs[i].destinations.devices().size();
    copies[i].push_back(reduced[i]);
    for (std::size_t k = 1; k < devices; ++k) {
      copies[i].push_back(reduced[i].is_sparse() ? reduced[i].clone()
                                                 : core.result_memory().empty_like(
                                                       reduced[i], reduced[i].scalar_type()));
    }
  }
  const auto lanes = static_cast<std::size_t>(core.replicas());
  core.on_lanes([&](int lane) {
    for (std::size_t i = 0; i < pairs.size(); ++i) {
      if (reduced[i].is_sparse()) continue;
      for (std::size_t k = 1; k < copies[i].size(); ++k) {
        if ((k - 1) % lanes == static_cast<std::size_t>(lane)) copy_bytes(reduced[i], copies[i][k]);
      }
    }
  });
  std::vector<Mirrored<Tensor>> results;
  results.reserve(pairs.size());
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    results.emplace_back(std::move(copies[i]), pairs[i].destinations.devices());
  }
  return results;
}

}  // namespace

class CollectiveAllReduce::Impl {
 public:
  Impl(coll::Session session, DeviceList devices, CommunicationOptions options)
      : session_(std::move(session)),
        devices_(std::move(devices)),
        options_(options),
        group_(keys_.group_key(devices_)) {
    const auto local = static_cast<int>(devices_.size());
    if (session_.replicas() != local * session_.size() ||
        session_.first_replica() != local * session_.rank()) {
      throw InvalidUsage(fmt::format(
          "CollectiveAllReduce: {} local devices, but the group counts {} replicas on {} workers: "
          "the group size must be the number of local devices times the number of workers",
          local, session_.replicas(), session_.size()));
    }
  }

  [[nodiscard]] int group_size() const noexcept { return session_.replicas(); }
  coll::Session& session() noexcept { return session_; }
  [[nodiscard]] std::size_t local_devices() const noexcept { return devices_.size(); }

  /// One call: its turn among the threads, its name and its deadline.
  class Call {
   public:
    Call(Impl& impl, const char* what, const CommunicationOptions& options)
        : impl_(impl), options_(impl.options_.merged(options)) {
      impl_.turn_.take("CollectiveAllReduce");
      impl_.explain_engine(options_.implementation);
      name_ = fmt::format("{} group {} instance {}", what, impl_.group_,
                          impl_.keys_.next_instance_key(impl_.group_, impl_.devices_.front()));
      const double seconds = options_.timeout_seconds.value().value_or(0);
      if (seconds > 0) {
        deadline_ = steady_clock::now() +
                    std::chrono::duration_cast<nanoseconds>(std::chrono::duration<double>(seconds));
      }
    }
    ~Call() { impl_.turn_.release(); }
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;

    [[nodiscard]] const CommunicationOptions& options() const noexcept { return options_; }
    [[nodiscard]] coll::CallOptions next() const {
      coll::CallOptions call{.name = name_};
      if (deadline_) {
        call.timeout = std::max(nanoseconds(1), nanoseconds(*deadline_ - steady_clock::now()));
      }
      return call;
    }

   private:
    Impl& impl_;
    CommunicationOptions options_;
    std::string name_;
    std::optional<steady_clock::time_point> deadline_;
  };

  void all_reduce(const Call& call, ReduceOp op, std::vector<DenseValue>& values);
  Tensor all_gather_rows(const Call& call, const Tensor& rows);
  Tensor reduce_sparse(const Call& call, ReduceOp op, const std::vector<Tensor>& components);

 private:
  void explain_engine(Communication implementation) {
    if (implementation != Communication::nccl && implementation != Communication::mpi) return;
    if (explained_engine_.exchange(true)) return;
    log_warning("communication {}: not built here; the host's collectives are used",
                implementation.name());
  }
  void start_in_place(const Call& call, Op op, std::vector<DenseValue>& values,
                      const detail::Pack& pack, Works& works);
  void start_packed(const Call& call, Op op, std::vector<DenseValue>& values,
                    const detail::Pack& pack, Works& works);

  coll::Session session_;
  DeviceList devices_;
  CommunicationOptions options_;
  detail::CollectiveKeys keys_;
  int group_;
  detail::Leadership turn_;
  std::atomic<bool> explained_engine_ = false;
};

// With one local device everything is reduced where it lies.
void CollectiveAllReduce::Impl::start_in_place(const Call& call, Op op,
                                               std::vector<DenseValue>& values,
                                               const detail::Pack& pack, Works& works) {
  coll::Batch batch = session_.batch();
  for (const detail::Piece& piece : pack) {
    DenseValue& value = values[piece.item];
    const Tensor& input = value.inputs.front();
    value.sum = detail::current_core().result_memory().empty_like(input, input.scalar_type());
    batch.all_reduce(op, buffer_of(input), buffer_of(value.sum));
  }
  works.add(batch.start(call.next()));
}

// A list of tensors from each of several devices is more than a session takes: end to end they are
// one tensor a device, each copied by its replica's thread.
void CollectiveAllReduce::Impl::start_packed(const Call& call, Op op,
                                             std::vector<DenseValue>& values,
                                             const detail::Pack& pack, Works& works) {
  detail::StrategyCore& core = detail::current_core();
  const at::ScalarType dtype = values[pack.front().item].inputs.front().scalar_type();
  std::int64_t elements = 0;
  for (const detail::Piece& piece : pack) elements += piece.end;
  const auto flat = [&] {
    const Tensor memory = core.result_memory().empty(elements, dtype);
    works.keep(memory);
    return memory;
  };
  std::vector<Tensor> packed(devices_.size());
  std::vector<coll::ConstBuffer> inputs;
  for (Tensor& memory : packed) {
    memory = flat();
    inputs.push_back(buffer_of(memory));
  }
  const Tensor sum = flat();
  std::int64_t begin = 0;
  for (const detail::Piece& piece : pack) {
    DenseValue& value = values[piece.item];
    value.sum = part_of(sum, begin, value.inputs.front());
    begin += piece.end;
  }
  core.on_lanes([&](int lane) {
    for (auto k = static_cast<std::size_t>(lane); k < packed.size();
         k += static_cast<std::size_t>(core.replicas())) {
      std::int64_t at = 0;
      for (const detail::Piece& piece : pack) {
        const Tensor& input = values[piece.item].inputs[k];
        copy_bytes(input, part_of(packed[k], at, input));
        at += piece.end;
      }
    }
  });
  works.add(session_.start_all_reduce(op, std::span<const coll::ConstBuffer>(inputs),
                                      buffer_of(sum), call.next()));
}

void CollectiveAllReduce::Impl::all_reduce(const Call& call, ReduceOp op,
                                           std::vector<DenseValue>& values) {
  std::vector<detail::PackItem> items;
  for (DenseValue& value : values) {
    const DType dtype = tensor::to_dtype(value.inputs.front().scalar_type());
    // Integers are added up as int64, and divided once all have been.
    value.divide = op == ReduceOp::mean && is_integer(dtype);
    for (Tensor& input : value.inputs) {
      input = value.divide ? input.to(at::kLong).contiguous() : input.contiguous();
    }
    items.push_back({value.inputs.front().scalar_type(), value.inputs.front().numel()});
  }
  Works works;
  for (const detail::Pack& pack : detail::fill(items, call.options().bytes_per_pack)) {
    const bool mean = op == ReduceOp::mean && !values[pack.front().item].divide;
    const Op sum_or_mean = mean ? Op::mean : Op::sum;
    if (devices_.size() == 1) {
      start_in_place(call, sum_or_mean, values, pack, works);
    } else {
      start_packed(call, sum_or_mean, values, pack, works);
    }
  }
  works.wait();
  for (DenseValue& value : values) {
    if (value.divide) value.sum = tensor::mean_of_sum(value.sum, group_size());
  }
}

Tensor CollectiveAllReduce::Impl::all_gather_rows(const Call& call, const Tensor& rows) {
  const Tensor own = rows.contiguous();
  std::vector<std::int64_t> mine = {own.size(0), fingerprint(own)};
  std::vector<std::int64_t> all(2 * static_cast<std::size_t>(session_.size()));
  session_.all_gather(std::span<const std::int64_t>(mine), std::span(all), {}, call.next());
  const std::int64_t row = c10::multiply_integers(own.sizes().slice(1));
  std::vector<std::uint64_t> counts;
  std::vector<std::int64_t> sizes = own.sizes().vec();
  sizes[0] = 0;
  for (std::size_t rank = 0; rank < all.size() / 2; ++rank) {
    if (all[2 * rank + 1] != mine[1]) {
      throw Mismatch(fmt::format(
          "gather: worker {} has rows of another shape or dtype than worker {}, which has {} [{}]; "
          "only the number of rows may differ",
          rank, session_.rank(), c10::toString(own.scalar_type()), tensor::shape_text(own)));
    }
    sizes[0] += all[2 * rank];
    counts.push_back(static_cast<std::uint64_t>(all[2 * rank] * row));
  }
  Tensor gathered = at::empty(sizes, own.options());
  session_.all_gather(buffer_of(own), buffer_of(gathered), counts, call.next());
  return gathered;
}

Tensor CollectiveAllReduce::Impl::reduce_sparse(const Call& call, ReduceOp op,
                                                const std::vector<Tensor>& components) {
  const Tensor local = tensor::reduce_sparse(tensor::Combine::sum, components);
  const Tensor indices = all_gather_rows(call, local._indices().t());
  Tensor values = all_gather_rows(call, local._values());
  if (op == ReduceOp::mean) values = tensor::mean_of_sum(values, group_size());
  return at::_sparse_coo_tensor_unsafe(indices.t(), values, local.sizes());
}

CollectiveAllReduce::CollectiveAllReduce(coll::Session session, DeviceList devices,
                                         CommunicationOptions options)
    : impl_(std::make_unique<Impl>(std::move(session), std::move(devices), options)) {}

CollectiveAllReduce::~CollectiveAllReduce() = default;

int CollectiveAllReduce::group_size() const noexcept { return impl_->group_size(); }
coll::Session& CollectiveAllReduce::session() noexcept { return impl_->session(); }

std::vector<Mirrored<Tensor>> CollectiveAllReduce::do_batch_reduce(
    ReduceOp op, std::span<const ReducePair> pairs, const CommunicationOptions& options) {
  for (const ReducePair& pair : pairs) {
    if (pair.value.components().size() != impl_->local_devices()) {
      throw InvalidUsage(fmt::format(
          "CollectiveAllReduce: a value of {} components, but this worker takes part with {} "
          "devices",
          pair.value.components().size(), impl_->local_devices()));
    }
  }
  const Impl::Call call(*impl_, "reduce", options);
  std::vector<Tensor> reduced(pairs.size());
  // Last to first: that is the order in which gradients are ready.
  std::vector<DenseValue> dense;
  for (std::size_t i = pairs.size(); i-- > 0;) {
    const std::vector<Tensor>& each = pairs[i].value.components();
    const auto is_sparse = [](const Tensor& tensor) { return tensor.is_sparse(); };
    if (std::all_of(each.begin(), each.end(), is_sparse)) {
      reduced[i] = impl_->reduce_sparse(call, op, each);
      continue;
    }
    DenseValue value{.pair = i, .inputs = {}};
    for (const Tensor& component : each) {
      value.inputs.push_back(component.is_sparse() ? component.to_dense() : component.detach());
    }
    tensor::check_dense(value.inputs);
    dense.push_back(std::move(value));
  }
  impl_->all_reduce(call, op, dense);
  for (DenseValue& value : dense) reduced[value.pair] = std::move(value.sum);

  return copied_to_destinations(pairs, reduced);
}

Tensor CollectiveAllReduce::do_all_gather(const std::vector<Tensor>& components, std::int64_t axis,
                                          const CommunicationOptions& options) {
  const Impl::Call call(*impl_, "all_gather", options);
  const Tensor rows = at::cat(components, axis).transpose(0, axis);
  return impl_->all_gather_rows(call, rows).transpose(0, axis);
}

}  // namespace lockstep
