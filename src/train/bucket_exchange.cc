// Gradients of several workers. A flat bucket in the group's memory, which workers of the same host
// read in place, holds those that travel together; `.grad` becomes a view of it. Where all workers
// share memory a large gradient travels alone, and from where libtorch has computed it, which is
// the group's memory as well (tensor/placed_memory.h), unless that went another way: then it is
// copied.
//
// The first step learns the order in which gradients come and which of them are sparse; the chief's
// order counts. From then on a gradient is moved into a flat bucket when it arrives. A bucket is
// complete when all local replicas have filled it; buckets are issued in their order, during
// backward if sending and computing can go on at the same time, by one session's own thread, else
// when it is over: then all lanes take slices, each over its own session.
// clang-format off
#include "lockstep/tensor.h"  // before libtorch's own
// clang-format on
#include <ATen/ops/from_blob.h>
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <optional>

#include "base/inline_vector.h"
#include "base/mutex.h"
#include "lockstep/coll/session.h"
#include "strategy/cross_device/reduce_on_lanes.h"
#include "tensor/buffer.h"
#include "train/bucket_plan.h"
#include "train/bucket_slices.h"
#include "train/gradient_exchange.h"

namespace lockstep::train {

namespace {

using detail::Workers;
using tensor::lies_like;

/// Of one worker, for every parameter, in the first step.
enum class Kind : std::int64_t { unused, dense, sparse };

Tensor tensor_over(const coll::Memory& memory, at::ScalarType dtype, std::int64_t elements) {
  return at::from_blob(
      memory.data(), {elements}, [memory](void*) {}, at::TensorOptions().dtype(dtype));
}

/// The part of a bucket in the shape, and where it can be the strides, of its parameter. Its
/// version is its own: that of a view would count the changes of all parts.
Tensor view_of(const Tensor& flat, std::int64_t begin, const Tensor& parameter) {
  const bool dense = parameter.is_non_overlapping_and_dense();
  const Tensor part = flat.narrow(0, begin, parameter.numel());
  return (dense ? part.as_strided(parameter.sizes(), parameter.strides())
                : part.view(parameter.sizes()))
      .variable_data();
}

bool is_same(const Tensor& gradient, const Tensor& view) {
  return gradient.defined() && lies_like(gradient, view) && gradient.data_ptr() == view.data_ptr();
}

/// Almost always both lie alike, and libtorch's ways are long.
void copy_into(const Tensor& view, const Tensor& gradient) {
  if (lies_like(gradient, view)) {
    std::memcpy(view.data_ptr(), gradient.data_ptr(), view.nbytes());
  } else {
    view.copy_(gradient.is_sparse() ? gradient.to_dense() : gradient);
  }
}

std::size_t bytes_before(const BucketSlice& slice, DType dtype) {
  return static_cast<std::size_t>(slice.begin) * size_of(dtype);
}

coll::ConstBuffer part_of(const coll::ConstBuffer& whole, const BucketSlice& slice) {
  const auto* data = static_cast<const std::byte*>(whole.data());
  return {whole.dtype(), data + bytes_before(slice, whole.dtype()),
          static_cast<std::size_t>(slice.elements)};
}

coll::Buffer part_of(const coll::Buffer& whole, const BucketSlice& slice) {
  auto* data = static_cast<std::byte*>(whole.data());
  return {whole.dtype(), data + bytes_before(slice, whole.dtype()),
          static_cast<std::size_t>(slice.elements)};
}

class Bucket {
 public:
  Bucket(const BucketLayout& layout, int replicas)
      : layout_(layout),
        description_(fmt::format("apply: gradients {}[{}]",
                                 to_string(tensor::to_dtype(layout.dtype)), layout.elements)),
        inputs_(static_cast<std::size_t>(replicas)) {
    empty();
  }

  [[nodiscard]] const BucketLayout& layout() const noexcept { return layout_; }
  /// What messages say of it.
  [[nodiscard]] const std::string& description() const noexcept { return description_; }
  /// Where a local replica's gradients lie, dense and as long as they are used.
  void lies_in(int replica, const Tensor& memory) {
    const coll::Buffer buffer = tensor::buffer_of(memory);
    inputs_[static_cast<std::size_t>(replica)] = buffer;
    if (replica == 0) sum_ = buffer;
  }
  [[nodiscard]] std::span<const coll::ConstBuffer> inputs() const noexcept { return inputs_; }
  [[nodiscard]] coll::Buffer sum() const noexcept { return sum_; }

  /// One more gradient is in its place; true for the last one.
  bool fill() noexcept { return missing_.fetch_sub(1) == 1; }
  [[nodiscard]] bool is_full() const noexcept { return missing_.load() <= 0; }
  void fill_all() noexcept { missing_.store(0); }
  void empty() noexcept { missing_.store(static_cast<int>(layout_.slots.size() * inputs_.size())); }

 private:
  BucketLayout layout_;
  std::string description_;
  std::vector<coll::ConstBuffer> inputs_;  // by local replica
  coll::Buffer sum_;                       // in the first one's memory
  std::atomic<int> missing_;
};

class BucketExchange : public GradientExchange {
 public:
  BucketExchange(detail::StrategyCore& core, const Parameters& parameters,
                 const GradientOptions& options)
      : core_(core), parameters_(parameters), options_(options) {
    const std::string transport = workers().session().transport();
    const bool network =
        transport.find("tcp") != std::string::npos || transport.find("tls") != std::string::npos;
    // Where parameters may be unused, workers would send at different moments, and a collective of
    // the step function's own would come between other buckets here than there.
    overlaps_ = !options.allow_unused && (options.overlap == Overlap::always ||
                                          (options.overlap == Overlap::automatic && network));
    // Without overlap one bucket is best, but for gradients that need not be moved into it. With
    // it, small ones start early, but each costs the network's latency; measured with bench-train.
    sizes_.limit = options.bucket_bytes > 0 ? options.bucket_bytes : overlaps_ ? kOverlapBytes : 0;
    if (!overlaps_ && (transport == "shared memory" || transport == "threads")) {
      sizes_.alone = options.bucket_bytes > 0 ? options.bucket_bytes : kAloneBytes;
    }
    why_ = fmt::format("{}, sent {}{}", transport,
                       overlaps_ ? "while backward goes on" : "after backward",
                       options.wire == coll::WireType::same ? "" : ", in 16 bits");
  }

  ~BucketExchange() override {
    drain();
    for (const auto& bucket : buckets_) {
      if (!bucket->layout().alone) continue;
      for (int r = 0; r < core_.replicas(); ++r) memory().forget(size_of(bucket->layout()));
    }
  }

  void arrived(int replica, int parameter) override {
    if (buckets_.empty()) return;
    const Place& place = places_[static_cast<std::size_t>(parameter)];
    if (place.bucket < 0) return;
    if (is_alone(place)) return;  // while backward goes on it is not to be seen who else has it
    move_in(replica, parameter);
    Bucket& bucket = *buckets_[static_cast<std::size_t>(place.bucket)];
    if (bucket.fill() && overlaps_) issue_full_ones();
  }

  void report_change(int replica, bool changed) override {
    if (overlaps_ && planned_) write_flag(replica, changed);
  }

  void forget(int replica, int parameter) override {
    if (!planned_) return;
    moved_in_[static_cast<std::size_t>(replica)][static_cast<std::size_t>(parameter)].reset();
    settled_ = false;
  }

  void settle() override {
    if (!overlaps_ || !planned_) return;
    fill_with_arrived();
    send_all();
    wait();
    empty_buckets();
    settled_ = true;
  }

  [[nodiscard]] bool sends_during_backward() const override { return overlaps_ && planned_; }

  bool finish(const Gathered& gathered) override {
    const at::NoGradGuard not_recorded;
    {
      const MutexLock lock(mutex_);
      here_ = gathered.here;
    }
    const bool is_first = !planned_;
    if (is_first) plan(gathered);
    if (!overlaps_ || is_first) {
      for (int r = 0; r < core_.replicas(); ++r) {
        write_flag(r, gathered.changed[static_cast<std::size_t>(r)]);
      }
    }
    fill_up();
    if (settled_) {
      // Everything was sent and added up before.
    } else if (overlaps_) {
      issue_full_ones();
    } else if (slices_.size() == 1) {
      reduce_slices(0, gathered.here);
    } else {
      core_.on_lanes([&](int lane) { reduce_slices(lane, gathered.here); });
    }
    used_ = used_anywhere(gathered);
    reduce_sparse(used_);
    wait();
    const bool changed = is_flag_set(gathered);
    begin_anew();
    return changed;
  }

  void bind(int replica) override {
    for (int p = 0; p < parameters_.count(); ++p) {
      Place& place = places_[static_cast<std::size_t>(p)];
      if (place.bucket < 0) continue;  // sparse: it has its own already
      parameters_.on(replica, p).mutable_grad() =
          used_[static_cast<std::size_t>(p)] ? place.views.front() : Tensor();
      // Dropped with the step, so that the next backward pass can have the memory again; the first
      // of several replicas' is the sum, which all of them have.
      if (is_alone(place) && (replica > 0 || core_.replicas() == 1)) {
        place.views[static_cast<std::size_t>(replica)].reset();
      }
    }
  }

  void discard() override {
    if (has_ended()) {
      drain();
    } else if (overlaps_ && planned_) {
      send_all();
      // Buckets look alike whether they are to be used or not: a worker that gives up alone, while
      // the others take a step, is found here.
      workers().barrier("discard");
      wait();
    }
    begin_anew();
  }

  [[nodiscard]] bool is_being_sent(const Tensor& gradient) const override {
    if (!overlaps_ || !gradient.has_storage()) return false;
    const void* memory = gradient.storage().data();
    for (const auto& bucket : buckets_) {
      for (const coll::ConstBuffer& flat : bucket->inputs()) {
        if (flat.data() == memory) return true;
      }
    }
    return false;
  }

  [[nodiscard]] std::string explain() const override {
    std::string text = fmt::format("gradients: {} workers over {}", workers().count(), why_);
    if (slices_.size() > 1) text += fmt::format(", by {} lanes of each worker", slices_.size());
    text += fmt::format("\n  {}\n", sizes_text());
    if (!planned_) return text + "  buckets are made in the first step, by order of arrival\n";
    for (std::size_t i = 0; i < buckets_.size(); ++i) {
      const BucketLayout& layout = buckets_[i]->layout();
      const int slices = slices_of(i);
      text += fmt::format("  bucket {}: {} gradient{}, {} bytes, first {}{}{}\n", i,
                          layout.slots.size(), layout.slots.size() == 1 ? "" : "s",
                          bytes_of_gradients(i), name_of(layout.slots.front().parameter),
                          layout.alone ? ", in place" : "",
                          slices > 1 ? fmt::format(", {} slices", slices) : "");
    }
    for (const int p : sparse_) text += fmt::format("  sparse, gathered: {}\n", name_of(p));
    return text;
  }

 private:
  [[nodiscard]] std::string sizes_text() const {
    const std::string buckets = sizes_.limit > 0 ? fmt::format("buckets of {} bytes", sizes_.limit)
                                                 : std::string("one bucket for each type");
    return sizes_.alone > 0 ? fmt::format("those of {} bytes or more in place, the others in {}",
                                          sizes_.alone, buckets)
                            : buckets;
  }

  [[nodiscard]] std::int64_t bytes_of_gradients(std::size_t bucket) const {
    const BucketLayout& layout = buckets_[bucket]->layout();
    const bool has_flag = flag_ && flag_->bucket == bucket;
    return has_flag ? flag_->element * layout.bytes() / layout.elements : layout.bytes();
  }

  static constexpr std::int64_t kOverlapBytes = 256 << 10;
  /// From here on a copy costs more than a call of its own.
  static constexpr std::int64_t kAloneBytes = 64 << 10;

  struct Place {
    int bucket = -1;            // -1: sparse, or never used
    std::vector<Tensor> views;  // one a local replica; alone in a bucket: of this step
  };

  struct Flag {
    std::size_t bucket = 0;
    std::int64_t element = 0;
  };

  [[nodiscard]] Workers& workers() const noexcept { return *core_.workers(); }
  [[nodiscard]] tensor::PlacedMemory& memory() const noexcept { return *core_.placed_memory(); }
  [[nodiscard]] bool is_alone(const Place& place) const noexcept {
    return buckets_[static_cast<std::size_t>(place.bucket)]->layout().alone;
  }
  static std::size_t size_of(const BucketLayout& layout) {
    return static_cast<std::size_t>(layout.bytes());
  }
  [[nodiscard]] const std::string& name_of(int parameter) const {
    return parameters_.variables[static_cast<std::size_t>(parameter)].name();
  }

  [[nodiscard]] int slices_of(std::size_t bucket) const {
    std::int64_t count = 0;
    for (const auto& lane : slices_) {
      count += std::count_if(lane.begin(), lane.end(),
                             [&](const BucketSlice& slice) { return slice.bucket == bucket; });
    }
    return static_cast<int>(count);
  }

  /// After the first backward: all workers take the chief's order, and agree on what is sparse.
  void plan(const Gathered& gathered) {
    const auto count = static_cast<std::size_t>(parameters_.count());
    std::vector<std::int64_t> own(2 * count, 0);
    std::vector<char> listed(count, 0);
    std::size_t next = 0;
    const auto list = [&](int p) {
      if (std::exchange(listed[static_cast<std::size_t>(p)], 1) != 0) return;
      own[next++] = p;
    };
    for (const int p : gathered.order) list(p);
    for (int p = parameters_.count() - 1; p >= 0; --p) list(p);
    for (std::size_t p = 0; p < count; ++p) {
      own[count + p] = static_cast<std::int64_t>(kind_of(static_cast<int>(p)));
    }
    const std::vector<std::int64_t> all = workers().gather(own, "order of gradients");
    places_.assign(count, {});
    std::vector<BucketItem> items;
    for (std::size_t i = 0; i < count; ++i) {
      const auto p = static_cast<int>(all[i]);  // the chief's
      if (agreed_kind(all, static_cast<std::size_t>(p)) == Kind::sparse) {
        sparse_.push_back(p);
        continue;
      }
      const Tensor& parameter = parameters_.on(0, p);
      if (parameter.requires_grad())
        items.push_back({p, parameter.scalar_type(), parameter.numel()});
    }
    std::sort(sparse_.begin(), sparse_.end());
    std::vector<BucketLayout> layouts = plan_buckets(items, sizes_);
    add_flag(layouts);
    slices_ = deal_slices(layouts, overlaps_ ? 1 : core_.replicas());  // all workers have as many
    workers().have_lane_sessions(static_cast<int>(slices_.size()));
    make_buckets(layouts);
    planned_ = true;
  }

  /// One element more in the last bucket that has room for it: whether something has changed a
  /// replica's parameters. So all workers know it without another call.
  void add_flag(std::vector<BucketLayout>& layouts) {
    for (std::size_t b = layouts.size(); b-- > 0 && !flag_;) {
      BucketLayout& layout = layouts[b];
      if (layout.alone) continue;
      flag_ = {b, layout.elements};
      layout.elements += line_elements(layout.dtype);
    }
    if (flag_) flags_.resize(static_cast<std::size_t>(core_.replicas()));
  }

  void write_flag(int replica, bool changed) {
    if (!flag_) return;
    const Tensor& flag = flags_[static_cast<std::size_t>(replica)];
    if (changed) {
      flag.fill_(1);
    } else {
      std::memset(flag.data_ptr(), 0, flag.nbytes());
    }
  }

  /// After the sums are there.
  [[nodiscard]] bool is_flag_set(const Gathered& gathered) const {
    if (flag_) {
      const Tensor& sum = flags_.front();
      const auto* bytes = static_cast<const char*>(sum.data_ptr());
      return std::any_of(bytes, bytes + sum.nbytes(), [](char byte) { return byte != 0; });
    }
    std::int64_t changed = std::count(gathered.changed.begin(), gathered.changed.end(), true);
    workers().sum(std::span(&changed, 1), "changed parameters");
    return changed > 0;
  }

  [[nodiscard]] Kind kind_of(int parameter) const {
    Kind kind = Kind::unused;
    for (int r = 0; r < core_.replicas(); ++r) {
      const Tensor gradient = parameters_.on(r, parameter).grad();
      if (!gradient.defined()) continue;
      if (!gradient.is_sparse()) return Kind::dense;
      kind = Kind::sparse;
    }
    return kind;
  }

  /// Sparse if it is so wherever it was used.
  [[nodiscard]] Kind agreed_kind(const std::vector<std::int64_t>& all, std::size_t p) const {
    const std::size_t count = places_.size();
    bool sparse = false;
    for (std::size_t w = 0; w < static_cast<std::size_t>(workers().count()); ++w) {
      const auto kind = static_cast<Kind>(all[w * 2 * count + count + p]);
      if (kind == Kind::dense) return Kind::dense;
      sparse = sparse || kind == Kind::sparse;
    }
    return sparse ? Kind::sparse : Kind::unused;
  }

  void make_buckets(const std::vector<BucketLayout>& layouts) {
    for (const BucketLayout& layout : layouts) {
      auto bucket = std::make_unique<Bucket>(layout, core_.replicas());
      for (const BucketSlot& slot : layout.slots) {
        Place& place = places_[static_cast<std::size_t>(slot.parameter)];
        place.bucket = static_cast<int>(buckets_.size());
        place.views.resize(static_cast<std::size_t>(core_.replicas()));
      }
      for (int r = 0; r < core_.replicas(); ++r) {
        if (layout.alone) {
          memory().expect(size_of(layout));
        } else {
          make_flat(*bucket, r);
        }
      }
      buckets_.push_back(std::move(bucket));
    }
    moved_in_.assign(static_cast<std::size_t>(core_.replicas()), {});
    for (auto& versions : moved_in_) versions.resize(places_.size());
  }

  void make_flat(Bucket& bucket, int replica) {
    const BucketLayout& layout = bucket.layout();
    const Tensor flat =
        tensor_over(workers().session().allocate(size_of(layout)), layout.dtype, layout.elements);
    bucket.lies_in(replica, flat);
    if (flag_ && flag_->bucket == buckets_.size()) {
      flags_[static_cast<std::size_t>(replica)] = flat.narrow(0, flag_->element, 1);
    }
    for (const BucketSlot& slot : layout.slots) {
      places_[static_cast<std::size_t>(slot.parameter)].views[static_cast<std::size_t>(replica)] =
          view_of(flat, slot.begin, parameters_.on(replica, slot.parameter).detach());
    }
  }

  /// The gradient into its place. Whoever lost the view (set `.grad` himself, or recorded the
  /// backward pass) gets it back.
  void move_in(int replica, int parameter) {
    const at::NoGradGuard not_recorded;
    const Tensor& own = parameters_.on(replica, parameter);
    const Tensor& gradient = own.grad();
    Place& place = places_[static_cast<std::size_t>(parameter)];
    Tensor& view = place.views[static_cast<std::size_t>(replica)];
    if (is_alone(place)) {
      view = is_placed(gradient, own) ? gradient : memory().empty_like(own.detach());
      buckets_[static_cast<std::size_t>(place.bucket)]->lies_in(replica, view);
    }
    if (!gradient.defined()) {
      view.zero_();
    } else if (!is_same(gradient, view)) {
      copy_into(view, gradient);
    }
    own.mutable_grad() = view;
    moved_in_[static_cast<std::size_t>(replica)][static_cast<std::size_t>(parameter)] =
        view._version();
  }

  /// Whether it lies where the other workers see it, and may become the sum.
  [[nodiscard]] bool is_placed(const Tensor& gradient, const Tensor& parameter) const {
    return gradient.defined() && lies_like(gradient, parameter) && may_become_sum(gradient) &&
           memory().holds(gradient);
  }

  /// What has not been moved in yet: unused parameters, large gradients, and everything in the
  /// first step.
  void fill_up() {
    const auto fill_replica = [&](int r) {
      for (const auto& bucket : buckets_) {
        for (const BucketSlot& slot : bucket->layout().slots) {
          const auto& version =
              moved_in_[static_cast<std::size_t>(r)][static_cast<std::size_t>(slot.parameter)];
          if (version) {
            take_changed(r, slot.parameter, *version);
          } else {
            move_in(r, slot.parameter);
            bucket->fill();
          }
        }
      }
    };
    core_.on_lanes(fill_replica);
  }

  /// What was not moved in when it came: gradients of passes that were accumulated, or that came
  /// while another optimizer had one of the parameters, too.
  void fill_with_arrived() {
    core_.on_lanes([&](int r) {
      for (int p = 0; p < parameters_.count(); ++p) {
        if (places_[static_cast<std::size_t>(p)].bucket < 0) continue;
        const bool moved_in =
            moved_in_[static_cast<std::size_t>(r)][static_cast<std::size_t>(p)].has_value();
        if (!moved_in && parameters_.on(r, p).grad().defined()) move_in(r, p);
      }
    });
  }

  /// What somebody has done to `.grad` after its gradient was moved in, when this was its version.
  /// (Writes through data() count no version.)
  void take_changed(int replica, int parameter, std::int64_t version) {
    const Tensor& gradient = parameters_.on(replica, parameter).grad();
    const Tensor& view =
        places_[static_cast<std::size_t>(parameter)].views[static_cast<std::size_t>(replica)];
    if (view.numel() == 0) return;
    const bool replaced = !is_same(gradient, view);
    if (overlaps_ && (replaced || view._version() != version)) {
      throw InvalidUsage(fmt::format(
          "apply: {} .grad of {} after backward, when it may have been sent already. To clip say "
          "apply(replica, {{.clip_global_norm = ...}}); change gradients while they are computed "
          "(register_hook), or say GradientOptions{{.overlap = Overlap::never}}",
          replaced ? "another tensor was put into" : "something was written to",
          name_of(parameter)));
    }
    if (replaced) move_in(replica, parameter);
  }

  [[nodiscard]] coll::CallOptions call(const Bucket& bucket) const {
    coll::CallOptions options = workers().call("gradients", {}, bucket.description());
    if (bucket.layout().dtype == at::kFloat) options.wire = options_.wire;
    return options;
  }

  /// On a lane: its slices, which meet those of the same lane of the other workers.
  void reduce_slices(int lane, Here here) {
    if (static_cast<std::size_t>(lane) >= slices_.size()) return;
    for (const BucketSlice& slice : slices_[static_cast<std::size_t>(lane)]) {
      const Bucket& bucket = *buckets_[slice.bucket];
      InlineVector<coll::ConstBuffer, 8> inputs;
      for (const coll::ConstBuffer& each : bucket.inputs()) {
        inputs.push_back(part_of(each, slice));
      }
      const std::span<const coll::ConstBuffer> each_replica = inputs.span();
      workers().session(lane).all_reduce(Op::sum, each_replica, part_of(bucket.sum(), slice),
                                         call(bucket), here);
    }
  }

  void issue_full_ones() {
    const MutexLock lock(mutex_);
    while (next_ < buckets_.size() && buckets_[next_]->is_full()) {
      Bucket& bucket = *buckets_[next_++];
      coll::CallOptions options = call(bucket);
      options.background = true;
      works_.push_back(workers().session().start_all_reduce(Op::sum, bucket.inputs(), bucket.sum(),
                                                            options, here_));
    }
  }

  void wait() {
    std::vector<coll::Work> works;
    {
      const MutexLock lock(mutex_);
      works.swap(works_);
    }
    for (coll::Work& work : works) work.wait();
  }

  /// The memory of what is under way is ours. Whoever failed has said so.
  void drain() noexcept {
    try {
      wait();
    } catch (...) {
    }
  }

  [[nodiscard]] bool has_ended() const noexcept {
    try {
      workers().session().check();
      return false;
    } catch (const Error&) {
      return true;
    }
  }

  /// How many buckets were issued is this worker's own: others may have gone further in backward.
  /// So all workers issue all, whatever is in them.
  void send_all() {
    for (const auto& bucket : buckets_) bucket->fill_all();
    issue_full_ones();
  }

  void empty_buckets() {
    for (const auto& bucket : buckets_) bucket->empty();
    const MutexLock lock(mutex_);
    next_ = 0;
  }

  void begin_anew() {
    empty_buckets();
    for (auto& versions : moved_in_) std::fill(versions.begin(), versions.end(), std::nullopt);
    settled_ = false;
  }

  /// By parameter: whether any replica of any worker has a gradient.
  [[nodiscard]] std::vector<bool> used_anywhere(const Gathered& gathered) const {
    if (!options_.allow_unused) return std::vector<bool>(places_.size(), true);
    std::vector<std::int64_t> used(gathered.used.begin(), gathered.used.end());
    workers().sum(used, "used parameters");
    std::vector<bool> result;
    for (const std::int64_t workers_with_one : used) result.push_back(workers_with_one > 0);
    return result;
  }

  void reduce_sparse(const std::vector<bool>& used) {
    for (const int p : sparse_) {
      if (!used[static_cast<std::size_t>(p)]) continue;
      std::vector<Tensor> each;
      for (int r = 0; r < core_.replicas(); ++r) {
        const Tensor& own = parameters_.on(r, p);
        const Tensor gradient = own.grad().defined() ? own.grad() : no_rows_of(own, 1);
        each.push_back(gradient.is_sparse() ? gradient : gradient.to_sparse(1));
      }
      const PerReplica<Tensor> value(std::move(each), core_.devices());
      const Mirrored<Tensor> sum =
          core_.ops().reduce(ReduceOp::sum, value, Destinations(core_.options().worker_devices));
      for (int r = 0; r < core_.replicas(); ++r) parameters_.on(r, p).mutable_grad() = sum[r];
    }
  }

  detail::StrategyCore& core_;
  const Parameters& parameters_;
  GradientOptions options_;
  bool overlaps_ = false;
  BucketSizes sizes_;
  std::string why_;

  bool planned_ = false;
  std::vector<std::unique_ptr<Bucket>> buckets_;  // in the order in which they are issued
  LaneSlices slices_;                             // of what is sent after backward
  std::vector<Place> places_;                     // by parameter
  std::vector<int> sparse_;
  std::optional<Flag> flag_;           // none: all gradients travel alone
  std::vector<Tensor> flags_;          // one a local replica; the first one's is the sum, too
  std::atomic<bool> settled_ = false;  // the sums of what has arrived are there already
  std::vector<bool> used_;             // by parameter, in the step that is being taken
  // [replica][parameter]: in its bucket, with this version of `.grad`; the replica's own.
  std::vector<std::vector<std::optional<std::int64_t>>> moved_in_;

  Mutex mutex_;
  std::size_t next_ GUARDED_BY(mutex_) = 0;  // bucket to be issued
  std::vector<coll::Work> works_ GUARDED_BY(mutex_);
  Here here_ GUARDED_BY(mutex_) = Here::now();  // of the last apply()
};

}  // namespace

std::unique_ptr<GradientExchange> bucket_exchange(detail::StrategyCore& core,
                                                  const Parameters& parameters,
                                                  const GradientOptions& options) {
  return std::make_unique<BucketExchange>(core, parameters, options);
}

}  // namespace lockstep::train
