// The exchange of gradients between several workers, through buckets.
//
// In the first step the workers agree on the order in which gradients arrive and on which of them
// are sparse (gradient_order.h). They plan the same buckets from it (bucket_plan.h). From then on:
//
//   1. A gradient that arrives is moved into its bucket (bucket_gradients.h).
//   2. Full buckets are summed (bucket_sender.h): during backward if sending and computing can go
//      on at the same time, otherwise after it.
//   3. One element of a bucket tells all workers of changed parameters (change_flag.h).
//   4. Sparse gradients are gathered after backward, one by one.
// clang-format off
#include "lockstep/tensor.h"  // before libtorch's own
// clang-format on
#include <c10/core/GradMode.h>
#include <fmt/format.h>

#include <atomic>
#include <optional>
#include <utility>

#include "lockstep/coll/session.h"
#include "train/bucket_gradients.h"
#include "train/bucket_plan.h"
#include "train/bucket_sender.h"
#include "train/bucket_slices.h"
#include "train/change_flag.h"
#include "train/gradient_exchange.h"
#include "train/gradient_order.h"

namespace lockstep::train {

namespace {

using detail::Workers;

class BucketExchange : public GradientExchange {
 public:
  BucketExchange(detail::StrategyCore& core, const Parameters& parameters,
                 const GradientOptions& options)
      : core_(core), parameters_(parameters), options_(options) {
    const std::string transport = workers().session().transport();
    const bool network =
        transport.find("tcp") != std::string::npos || transport.find("tls") != std::string::npos;
    // If parameters may be unused, workers would send at different moments. Then a collective of
    // the step function would come between different buckets on different workers.
    overlaps_ = !options.allow_unused && (options.overlap == Overlap::always ||
                                          (options.overlap == Overlap::automatic && network));
    // Without overlap one bucket is best, but for gradients that need not be moved into it. With
    // overlap small buckets start early, but each costs the network's latency. Measured with
    // bench-train.
    sizes_.limit = options.bucket_bytes > 0 ? options.bucket_bytes : overlaps_ ? kOverlapBytes : 0;
    if (!overlaps_ && (transport == "shared memory" || transport == "threads")) {
      sizes_.alone = options.bucket_bytes > 0 ? options.bucket_bytes : kAloneBytes;
    }
    why_ = fmt::format("{}, sent {}{}", transport,
                       overlaps_ ? "while backward goes on" : "after backward",
                       options.wire == coll::WireType::same ? "" : ", in 16 bits");
  }

  void arrived(int replica, int parameter) override {
    if (!is_planned()) return;
    const bool is_full = gradients_->arrived(replica, parameter);
    if (is_full && overlaps_) sender_->send_full();
  }

  void report_change(int replica, bool changed) override {
    if (sends_during_backward()) flag_->write(replica, changed);
  }

  void forget(int replica, int parameter) override {
    if (!is_planned()) return;
    gradients_->forget(replica, parameter);
    settled_ = false;
  }

  void settle() override {
    if (!sends_during_backward()) return;
    gradients_->move_arrived();
    sender_->send_all();
    sender_->finish();
    sender_->begin_anew();
    settled_ = true;
  }

  [[nodiscard]] bool sends_during_backward() const override { return overlaps_ && is_planned(); }

  bool finish(const Gathered& gathered) override {
    const at::NoGradGuard not_recorded;
    const bool is_first = !is_planned();
    if (is_first) plan(gathered);
    sender_->set_call_site(gathered.here);
    if (!overlaps_ || is_first) {
      sender_->set_scale(gathered.scale);
      for (int r = 0; r < core_.replicas(); ++r) {
        flag_->write(r, gathered.changed[static_cast<std::size_t>(r)]);
      }
    }
    gradients_->fill_up();
    if (!settled_) send(gathered.here);
    used_ = used_anywhere(gathered);
    reduce_sparse();
    sender_->finish();
    const bool changed = flag_->is_set(workers(), gathered.changed, gathered.scale);
    // What was sent during backward had left before this apply(). All buckets of a step have one
    // name, so the next step's compare it.
    sender_->set_scale(gathered.scale);
    begin_anew();
    return changed;
  }

  void bind(int replica) override { gradients_->bind(replica, used_); }

  void discard() override {
    if (!is_planned()) return;  // nothing was moved or sent
    if (has_ended()) {
      sender_->drain();
    } else if (overlaps_) {
      sender_->send_all();
      // A bucket does not show whether a step uses it. The barrier finds a worker that discards its
      // gradients while the others take a step.
      workers().barrier("discard");
      sender_->finish();
    }
    begin_anew();
  }

  [[nodiscard]] std::string explain() const override {
    std::string text = fmt::format("gradients: {} workers over {}", workers().count(), why_);
    if (is_planned() && sender_->slices().size() > 1) {
      text += fmt::format(", by {} lanes of each worker", sender_->slices().size());
    }
    text += fmt::format("\n  {}\n", sizes_text());
    return text + (is_planned() ? buckets_text()
                                : "  buckets are made in the first step, by order of arrival\n");
  }

 private:
  static constexpr std::int64_t kOverlapBytes = 256 << 10;
  /// From here on a copy costs more than a call of its own.
  static constexpr std::int64_t kAloneBytes = 64 << 10;

  [[nodiscard]] Workers& workers() const noexcept { return *core_.workers(); }
  [[nodiscard]] bool is_planned() const noexcept { return sender_.has_value(); }

  /// After the first backward pass, by all workers together.
  void plan(const Gathered& gathered) {
    GradientOrder order = agree_on_order(workers(), parameters_, gathered.order);
    std::vector<BucketItem> items;
    for (const int p : order.dense) {
      const Tensor& parameter = parameters_.on(0, p);
      items.push_back({p, parameter.scalar_type(), parameter.numel()});
    }
    std::vector<BucketLayout> layouts = plan_buckets(items, sizes_);
    flag_.emplace(layouts);
    // All workers have as many replicas, so they deal the same slices.
    LaneSlices slices = deal_slices(layouts, overlaps_ ? 1 : core_.replicas());
    workers().have_lane_sessions(static_cast<int>(slices.size()));
    gradients_.emplace(core_, parameters_, layouts,
                       overlaps_ ? BucketGradients::Grad::stays : BucketGradients::Grad::is_view);
    flag_->attach(gradients_->buckets());
    sparse_ = std::move(order.sparse);
    sender_.emplace(core_, gradients_->buckets(), std::move(slices), options_.wire);
  }

  void send(Here here) {
    if (overlaps_) {
      sender_->send_full();
    } else {
      sender_->reduce(here);
    }
  }

  void begin_anew() {
    sender_->begin_anew();
    gradients_->forget_all();
    settled_ = false;
  }

  [[nodiscard]] bool has_ended() const noexcept {
    try {
      workers().session().check();
      return false;
    } catch (const Error&) {
      return true;
    }
  }

  /// By parameter: whether any replica of any worker has a gradient.
  [[nodiscard]] std::vector<bool> used_anywhere(const Gathered& gathered) const {
    if (!options_.allow_unused) return std::vector<bool>(parameters_.variables.size(), true);
    std::vector<std::int64_t> used(gathered.used.begin(), gathered.used.end());
    workers().sum(used, "used parameters");
    std::vector<bool> result;
    for (const std::int64_t workers_with_one : used) result.push_back(workers_with_one > 0);
    return result;
  }

  void reduce_sparse() {
    for (const int p : sparse_) {
      if (!used_[static_cast<std::size_t>(p)]) continue;
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

  [[nodiscard]] std::string sizes_text() const {
    const std::string buckets = sizes_.limit > 0 ? fmt::format("buckets of {} bytes", sizes_.limit)
                                                 : std::string("one bucket for each type");
    return sizes_.alone > 0 ? fmt::format("those of {} bytes or more in place, the others in {}",
                                          sizes_.alone, buckets)
                            : buckets;
  }

  [[nodiscard]] std::string buckets_text() const {
    std::string text;
    const Buckets& buckets = gradients_->buckets();
    for (std::size_t i = 0; i < buckets.size(); ++i) {
      const BucketLayout& layout = buckets[i]->layout();
      const int slices = count_slices(sender_->slices(), i);
      text += fmt::format(
          "  bucket {}: {} gradient{}, {} bytes, first {}{}{}\n", i, layout.slots.size(),
          layout.slots.size() == 1 ? "" : "s", layout.bytes() - flag_->bytes_in(i),
          parameters_.name(layout.slots.front().parameter), layout.alone ? ", in place" : "",
          slices > 1 ? fmt::format(", {} slices", slices) : "");
    }
    for (const int p : sparse_) {
      text += fmt::format("  sparse, gathered: {}\n", parameters_.name(p));
    }
    return text;
  }

  detail::StrategyCore& core_;
  const Parameters& parameters_;
  GradientOptions options_;
  bool overlaps_ = false;  // gradients are sent during backward
  BucketSizes sizes_;
  std::string why_;  // for explain()

  // Made in the first step, the sender last: it refers to the buckets.
  std::vector<int> sparse_;  // parameters
  std::optional<ChangeFlag> flag_;
  std::optional<BucketGradients> gradients_;
  std::optional<BucketSender> sender_;

  std::atomic<bool> settled_ = false;  // the sums of what has arrived are there already
  std::vector<bool> used_;             // by parameter, in the step that is being taken
};

}  // namespace

std::unique_ptr<GradientExchange> bucket_exchange(detail::StrategyCore& core,
                                                  const Parameters& parameters,
                                                  const GradientOptions& options) {
  return std::make_unique<BucketExchange>(core, parameters, options);
}

}  // namespace lockstep::train
