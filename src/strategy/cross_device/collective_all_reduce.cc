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

#include "base/deadline.h"
#include "base/log.h"
#include "lockstep/coll/batch.h"
#include "strategy/core.h"
#include "strategy/cross_device/collective_keys.h"
#include "strategy/cross_device/packing.h"
#include "strategy/cross_device/reduce_on_lanes.h"
#include "tensor/buffer.h"
#include "tensor/dtype.h"
#include "tensor/reduce.h"
#include "tensor/torch_text.h"

namespace lockstep {

namespace {

using std::chrono::nanoseconds;
using tensor::buffer_of;
using tensor::plain;
/// Words in which workers say what they ask for; different words, Mismatch.
using Agreement = std::vector<std::int64_t>;

void add_shape(Agreement& words, const Tensor& tensor) {
  words.push_back(static_cast<std::int64_t>(tensor.scalar_type()));
  words.push_back(tensor.dim());
  words.insert(words.end(), tensor.sizes().begin(), tensor.sizes().end());
}

/// What messages say of a call: the user's verb, or what it is called here, and what was given.
std::string described_as(std::string_view otherwise, const std::string& given) {
  const std::string text = detail::Verb::describe(given);
  return text == given ? fmt::format("{} {}", otherwise, given) : text;
}

/// A value that is ready to be sent: everything that can be wrong with it here has been found.
struct Outgoing {
  const ReducePair* pair;
  std::vector<Tensor> inputs = {};  // dense, one a local device; of the dtype that is added
  Tensor sparse = {};               // or the local components, put together
  bool divide = false;              // the sum is one of integers whose mean is wanted
  Tensor result = {};
  bool shares_memory = false;  // the result is a part of something larger

  Outgoing(ReduceOp op, const ReducePair& from) : pair(&from) {
    const std::vector<Tensor>& each = from.value.components();
    if (tensor::all_sparse(each)) {
      // Divided once all workers' parts are here.
      sparse =
          tensor::reduce_sparse(op.picks() ? detail::combine_of(op) : tensor::Combine::sum, each);
      return;
    }
    for (const Tensor& component : each) {
      inputs.push_back(plain(component.is_sparse() ? component.to_dense() : component));
    }
    tensor::check_dense(detail::combine_of(op), inputs);
    // Integers are added up as int64, and divided once all have been.
    divide = op == ReduceOp::mean && is_integer(tensor::to_dtype(dtype()));
    for (Tensor& input : inputs) {
      if (divide) input = input.to(at::kLong);
    }
  }

  /// Of the value, whatever is added.
  [[nodiscard]] at::ScalarType dtype() const {
    return pair->value.components().front().scalar_type();
  }
  /// Makes the sum of integers in `result` the mean of `count`.
  void divide_result(int count) {
    const DType mean = tensor::mean_dtype(tensor::to_dtype(dtype()));
    result = tensor::mean_of_sum(result, count).to(tensor::to_scalar_type(mean));
    shares_memory = false;
  }
};

/// "reduce SUM float32[3]", "apply SUM of 12 tensors float32[784, 128], float32[128], ...".
std::string described(ReduceOp op, const std::vector<Outgoing*>& values) {
  std::vector<Tensor> given;
  for (const Outgoing* value : values) given.push_back(value->pair->value.components().front());
  const std::string count = given.size() == 1 ? "" : fmt::format("of {} tensors ", given.size());
  return described_as("reduce", fmt::format("{} {}{}", op.name(), count, tensor::type_text(given)));
}

/// What the workers' parts go through. Integers whose mean is wanted are divided afterwards.
Op op_of(ReduceOp op, bool divides_later) {
  if (op == ReduceOp::max) return Op::max;
  if (op == ReduceOp::min) return Op::min;
  return op == ReduceOp::mean && !divides_later ? Op::mean : Op::sum;
}

/// Operations under way. Their memory may not go before they are over, whatever happens here.
class Works {
 public:
  explicit Works(std::size_t count) { works_.reserve(count); }
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

  void keep(const Tensor& memory) { memory_.push_back(memory); }
  void add(coll::Work work) { works_.push_back(std::move(work)); }
  void finish() {
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

/// A result that has memory to itself goes to the first destination as it is; the others get
/// copies, of which all lanes make a part.
std::vector<Mirrored<Tensor>> to_destinations(const std::vector<Outgoing>& all) {
  detail::StrategyCore& core = detail::current_core();
  std::vector<std::vector<Tensor>> copies(all.size());
  for (std::size_t i = 0; i < all.size(); ++i) {
    const Tensor& result = all[i].result;
    while (copies[i].size() < all[i].pair->destinations.devices().size()) {
      if (copies[i].empty() && !all[i].shares_memory) {
        copies[i].push_back(result);
      } else if (result.is_sparse()) {
        copies[i].push_back(result.clone());
      } else {
        copies[i].push_back(core.result_memory().empty_like(result, result.scalar_type()));
      }
    }
  }
  const auto lanes = static_cast<std::size_t>(core.replicas());
  core.on_lanes([&](int lane) {
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (all[i].result.is_sparse()) continue;
      for (auto k = static_cast<std::size_t>(lane); k < copies[i].size(); k += lanes) {
        if (!copies[i][k].is_same(all[i].result)) copy_bytes(all[i].result, copies[i][k]);
      }
    }
  });
  std::vector<Mirrored<Tensor>> results;
  results.reserve(all.size());
  for (std::size_t i = 0; i < all.size(); ++i) {
    results.emplace_back(std::move(copies[i]), all[i].pair->destinations.devices());
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

  /// One call: its deadline, its turn among the threads, and its name.
  class Call {
   public:
    // The strategy's turn first, as a step has it when it comes here: the other way round two
    // threads could each have what the other waits for.
    Call(Impl& impl, const char* what, const CommunicationOptions& options)
        : options_(impl.options_.merged(options)),
          deadline_(deadline_of(options_)),
          strategys_turn_(detail::current_core(), deadline_),
          turn_(impl.turn_, "CollectiveAllReduce", deadline_) {
      impl.explain_engine(options_.implementation);
      name_ = fmt::format("{} group {} instance {}", what, impl.group_,
                          impl.keys_.next_instance_key(impl.group_, impl.devices_.front()));
    }

    [[nodiscard]] const CommunicationOptions& options() const noexcept { return options_; }
    /// For the next operation; it may take what is left of the time.
    [[nodiscard]] coll::CallOptions next(std::span<const std::int64_t> agreement,
                                         std::string_view description) const {
      coll::CallOptions call{.name = name_, .description = description, .shape = agreement};
      if (!deadline_.is_never()) {
        const nanoseconds left = deadline_.time() - MonotonicClock().now();
        call.timeout = std::max(nanoseconds(1), left);
      }
      return call;
    }

   private:
    static Deadline deadline_of(const CommunicationOptions& options) {
      constexpr double kForever = 1e9;  // seconds
      const double seconds = options.timeout_seconds.value().value_or(0);
      if (seconds <= 0 || seconds >= kForever) return Deadline::never();
      return Deadline::after(
          std::chrono::duration_cast<nanoseconds>(std::chrono::duration<double>(seconds)));
    }

    CommunicationOptions options_;
    Deadline deadline_;
    detail::Turn strategys_turn_;
    detail::Leading turn_;
    std::string name_;
  };

  void reduce_dense(const Call& call, ReduceOp op, const std::vector<Outgoing*>& values);
  void reduce_sparse(const Call& call, ReduceOp op, Outgoing& value);
  /// A tensor that is not distributed: every worker has one, however many devices.
  void reduce_plain(const Call& call, ReduceOp op, Outgoing& value);
  /// Every worker's rows, in rank order. Besides the number of rows all must be the same, also what
  /// `agreement` says.
  Tensor all_gather_rows(const Call& call, const Tensor& rows, Agreement agreement,
                         const std::string& description);

 private:
  void explain_engine(Communication implementation) {
    if (implementation != Communication::nccl && implementation != Communication::mpi) return;
    if (explained_engine_.exchange(true)) return;
    log_warning("communication {}: not built here; the host's collectives are used",
                implementation.name());
  }
  using Pack = std::vector<Outgoing*>;
  void start_in_place(const coll::CallOptions& options, Op op, const Pack& pack, Works& works);
  void start_packed(const coll::CallOptions& options, Op op, const Pack& pack, Works& works);

  coll::Session session_;
  DeviceList devices_;
  CommunicationOptions options_;
  detail::CollectiveKeys keys_;
  int group_;
  detail::Leadership turn_;
  std::atomic<bool> explained_engine_ = false;
};

// With one local device everything is reduced where it lies.
void CollectiveAllReduce::Impl::start_in_place(const coll::CallOptions& options, Op op,
                                               const Pack& pack, Works& works) {
  coll::Batch batch = session_.batch();
  for (Outgoing* value : pack) {
    const Tensor& input = value->inputs.front();
    value->result = detail::current_core().result_memory().empty_like(input, input.scalar_type());
    batch.all_reduce(op, buffer_of(input), buffer_of(value->result));
  }
  works.add(batch.start(options, detail::Verb::place()));
}

// A list of tensors from each of several devices is more than a session takes: end to end they are
// one tensor a device, each copied by its replica's thread.
void CollectiveAllReduce::Impl::start_packed(const coll::CallOptions& options, Op op,
                                             const Pack& pack, Works& works) {
  detail::StrategyCore& core = detail::current_core();
  std::int64_t elements = 0;
  for (const Outgoing* value : pack) elements += value->inputs.front().numel();
  const auto flat = [&] {
    Tensor memory =
        core.result_memory().empty(elements, pack.front()->inputs.front().scalar_type());
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
  for (Outgoing* value : pack) {
    value->result = part_of(sum, begin, value->inputs.front());
    value->shares_memory = true;
    begin += value->result.numel();
  }
  const auto lanes = static_cast<std::size_t>(core.replicas());
  core.on_lanes([&](int lane) {
    for (auto k = static_cast<std::size_t>(lane); k < packed.size(); k += lanes) {
      std::int64_t at = 0;
      for (const Outgoing* value : pack) {
        copy_bytes(value->inputs[k], part_of(packed[k], at, value->inputs[k]));
        at += value->inputs[k].numel();
      }
    }
  });
  works.add(session_.start_all_reduce(op, std::span<const coll::ConstBuffer>(inputs),
                                      buffer_of(sum), options, detail::Verb::place()));
}

void CollectiveAllReduce::Impl::reduce_dense(const Call& call, ReduceOp op,
                                             const std::vector<Outgoing*>& values) {
  std::vector<detail::PackItem> items;
  for (const Outgoing* value : values) {
    items.push_back({value->inputs.front().scalar_type(), value->inputs.front().numel()});
  }
  const auto packs = detail::fill(items, call.options().bytes_per_pack);
  Works works(packs.size());
  for (const detail::Pack& pieces : packs) {
    Pack pack;
    Agreement agreement = {static_cast<std::int64_t>(op)};
    for (const detail::Piece& piece : pieces) {
      pack.push_back(values[piece.item]);
      add_shape(agreement, pack.back()->inputs.front());
      agreement.push_back(static_cast<std::int64_t>(pack.back()->dtype()));
    }
    const std::string description = described(op, pack);
    const coll::CallOptions options = call.next(agreement, description);
    const Op how = op_of(op, pack.front()->divide);
    if (devices_.size() == 1) {
      start_in_place(options, how, pack, works);
    } else {
      start_packed(options, how, pack, works);
    }
  }
  works.finish();
  for (Outgoing* value : values) {
    if (value->divide) value->divide_result(group_size());
  }
}

Tensor CollectiveAllReduce::Impl::all_gather_rows(const Call& call, const Tensor& rows,
                                                  Agreement agreement,
                                                  const std::string& description) {
  const Tensor own = plain(rows);
  std::vector<std::int64_t> sizes = own.sizes().vec();
  sizes[0] = 0;
  agreement.push_back(static_cast<std::int64_t>(own.scalar_type()));
  agreement.insert(agreement.end(), sizes.begin(), sizes.end());
  // The numbers of rows first; who asks for something else is found here already.
  const std::vector<std::int64_t> mine = {own.size(0)};
  std::vector<std::int64_t> lengths(static_cast<std::size_t>(session_.size()));
  session_.all_gather(std::span<const std::int64_t>(mine), std::span(lengths), {},
                      call.next(agreement, description), detail::Verb::place());
  const std::int64_t row = c10::multiply_integers(own.sizes().slice(1));
  std::vector<std::uint64_t> counts;
  for (const std::int64_t length : lengths) {
    sizes[0] += length;
    counts.push_back(static_cast<std::uint64_t>(length * row));
  }
  Tensor gathered = at::empty(sizes, own.options());
  session_.all_gather(buffer_of(own), buffer_of(gathered), counts, call.next({}, description),
                      detail::Verb::place());
  return gathered;
}

void CollectiveAllReduce::Impl::reduce_sparse(const Call& call, ReduceOp op, Outgoing& value) {
  Agreement agreement = {static_cast<std::int64_t>(op), value.sparse.sparse_dim()};
  add_shape(agreement, value.sparse);
  const std::string description = described(op, {&value});
  const Tensor indices = all_gather_rows(call, value.sparse._indices().t(), agreement, description);
  Tensor values = all_gather_rows(call, value.sparse._values(), agreement, description);
  const int count = value.pair->value.is_plain() ? session_.size() : group_size();
  if (op == ReduceOp::mean) values = tensor::mean_of_sum(values, count);
  value.result = at::_sparse_coo_tensor_unsafe(indices.t(), values, value.sparse.sizes());
}

void CollectiveAllReduce::Impl::reduce_plain(const Call& call, ReduceOp op, Outgoing& value) {
  const Tensor& own = value.inputs.front();
  Agreement agreement = {static_cast<std::int64_t>(op)};
  add_shape(agreement, own);
  agreement.push_back(static_cast<std::int64_t>(value.dtype()));
  const Tensor all = all_gather_rows(call, own.unsqueeze(0), agreement, described(op, {&value}));
  const ReduceOp now = value.divide ? ReduceOp(ReduceOp::sum) : op;
  value.result = tensor::reduce_dense(detail::combine_of(now), all.unbind(0));
  if (value.divide) value.divide_result(session_.size());
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
    if (pair.value.is_plain() && impl_->session().size() > 1) continue;  // every worker has one
    if (pair.value.components().size() != impl_->local_devices()) {
      throw InvalidUsage(fmt::format(
          "CollectiveAllReduce: a value of {} components, but this worker takes part with {} "
          "devices",
          pair.value.components().size(), impl_->local_devices()));
    }
  }
  // All that can be wrong here is found before the first byte is sent.
  std::vector<Outgoing> all;
  all.reserve(pairs.size());
  for (const ReducePair& pair : pairs) all.emplace_back(op, pair);

  const Impl::Call call(*impl_, "reduce", options);
  // Last to first: that is the order in which gradients are ready.
  std::vector<Outgoing*> dense;
  for (auto value = all.rbegin(); value != all.rend(); ++value) {
    if (value->sparse.defined()) {
      impl_->reduce_sparse(call, op, *value);
    } else if (value->pair->value.is_plain() && impl_->local_devices() > 1) {
      impl_->reduce_plain(call, op, *value);
    } else {
      dense.push_back(&*value);
    }
  }
  impl_->reduce_dense(call, op, dense);
  return to_destinations(all);
}

Tensor CollectiveAllReduce::do_all_gather(const std::vector<Tensor>& components, std::int64_t axis,
                                          const CommunicationOptions& options) {
  const Tensor local = at::cat(components, axis).transpose(0, axis);
  const Impl::Call call(*impl_, "all_gather", options);
  const std::string where = axis == 0 ? "" : fmt::format("along axis {} ", axis);
  const std::string description = described_as("gather", where + tensor::type_text(components));
  return impl_->all_gather_rows(call, local, {axis}, description).transpose(0, axis);
}

}  // namespace lockstep
