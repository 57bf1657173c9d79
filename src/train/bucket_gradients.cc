// clang-format off
#include "lockstep/tensor.h"  // before libtorch's own
// clang-format on
#include "train/bucket_gradients.h"

#include <ATen/ops/from_blob.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "lockstep/coll/session.h"
#include "tensor/buffer.h"
#include "train/gradient_exchange.h"

namespace lockstep::train {

namespace {

using tensor::lies_like;

Tensor tensor_over(const coll::Memory& memory, at::ScalarType dtype, std::int64_t elements) {
  return at::from_blob(
      memory.data(), {elements}, [memory](void*) {}, at::TensorOptions().dtype(dtype));
}

/// The part of a flat tensor that has the shape and, if they are dense, the strides of its
/// parameter. Its version is its own: that of a view would count the changes of all parts.
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

void copy_into(const Tensor& view, const Tensor& gradient) {
  if (lies_like(gradient, view)) {  // almost always; memcpy avoids libtorch's dispatcher
    std::memcpy(view.data_ptr(), gradient.data_ptr(), view.nbytes());
  } else {
    view.copy_(gradient.is_sparse() ? gradient.to_dense() : gradient);
  }
}

}  // namespace

BucketGradients::BucketGradients(detail::StrategyCore& core, const Parameters& parameters,
                                 const std::vector<BucketLayout>& layouts, Grad grad)
    : core_(core),
      parameters_(parameters),
      grad_(grad),
      places_(parameters.variables.size()),
      moved_in_(static_cast<std::size_t>(core.replicas()),
                std::vector<char>(parameters.variables.size(), 0)) {
  for (const BucketLayout& layout : layouts) make_bucket(layout);
  // Last, so that it needs no undoing if memory is short.
  for (const auto& bucket : buckets_) {
    if (!bucket->layout().alone) continue;
    for (int r = 0; r < core_.replicas(); ++r) memory().expect(bucket->bytes());
  }
}

BucketGradients::~BucketGradients() {
  for (const auto& bucket : buckets_) {
    if (!bucket->layout().alone) continue;
    for (int r = 0; r < core_.replicas(); ++r) memory().forget(bucket->bytes());
  }
}

void BucketGradients::make_bucket(const BucketLayout& layout) {
  Bucket& bucket = *buckets_.emplace_back(std::make_unique<Bucket>(layout, core_.replicas()));
  for (const BucketSlot& slot : layout.slots) {
    place(slot.parameter).bucket = &bucket;
    place(slot.parameter).views.resize(static_cast<std::size_t>(core_.replicas()));
  }
  if (layout.alone) return;
  for (int r = 0; r < core_.replicas(); ++r) make_flat(bucket, r);
}

void BucketGradients::make_flat(Bucket& bucket, int replica) {
  const BucketLayout& layout = bucket.layout();
  const Tensor flat = tensor_over(core_.workers()->session().allocate(bucket.bytes()), layout.dtype,
                                  layout.elements);
  for (const BucketSlot& slot : layout.slots) {
    place(slot.parameter).views[static_cast<std::size_t>(replica)] =
        view_of(flat, slot.begin, parameters_.on(replica, slot.parameter).detach());
  }
  bucket.keep(replica, flat);
}

bool BucketGradients::arrived(int replica, int parameter) {
  Bucket* bucket = place(parameter).bucket;
  // During backward other consumers may still share a large gradient; fill_up() looks at it.
  if (bucket == nullptr || bucket->layout().alone) return false;
  move_in(replica, parameter);
  return bucket->fill();
}

void BucketGradients::forget(int replica, int parameter) { is_moved_in(replica, parameter) = 0; }

void BucketGradients::forget_all() {
  for (auto& of_replica : moved_in_) std::fill(of_replica.begin(), of_replica.end(), 0);
}

/// Also if the program has set `.grad`, or has recorded the backward pass.
void BucketGradients::move_in(int replica, int parameter) {
  const at::NoGradGuard not_recorded;
  const Tensor& own = parameters_.on(replica, parameter);
  const Tensor& gradient = own.grad();
  Bucket& bucket = *place(parameter).bucket;
  Tensor& view = place(parameter).views[static_cast<std::size_t>(replica)];
  if (bucket.layout().alone) {
    view = can_stay(gradient, own) ? gradient : memory().empty_like(own.detach());
    bucket.lies_in(replica, view);
  }
  if (!gradient.defined()) {
    view.zero_();
  } else if (!is_same(gradient, view)) {
    copy_into(view, gradient);
  }
  if (grad_ == Grad::is_view) own.mutable_grad() = view;
  is_moved_in(replica, parameter) = 1;
}

/// Whether it is in memory that the other workers read, and may be overwritten with the sum.
bool BucketGradients::can_stay(const Tensor& gradient, const Tensor& parameter) const {
  return gradient.defined() && lies_like(gradient, parameter) && may_become_sum(gradient) &&
         memory().holds(gradient);
}

void BucketGradients::fill_up() {
  const auto fill_replica = [&](int r) {
    for (const auto& bucket : buckets_) {
      for (const BucketSlot& slot : bucket->layout().slots) {
        if (is_moved_in(r, slot.parameter) != 0) {
          take_replaced(r, slot.parameter);
        } else {
          move_in(r, slot.parameter);
          bucket->fill();
        }
      }
    }
  };
  core_.on_lanes(fill_replica);
}

void BucketGradients::move_arrived() {
  core_.on_lanes([&](int r) {
    for (int p = 0; p < parameters_.count(); ++p) {
      if (place(p).bucket == nullptr || is_moved_in(r, p) != 0) continue;
      if (parameters_.on(r, p).grad().defined()) move_in(r, p);
    }
  });
}

void BucketGradients::take_replaced(int replica, int parameter) {
  if (grad_ == Grad::stays) return;  // it may have been sent
  const Tensor& gradient = parameters_.on(replica, parameter).grad();
  const Tensor& view = place(parameter).views[static_cast<std::size_t>(replica)];
  if (view.numel() > 0 && !is_same(gradient, view)) move_in(replica, parameter);
}

void BucketGradients::bind(int replica, const std::vector<bool>& used) {
  for (int p = 0; p < parameters_.count(); ++p) {
    Place& own = place(p);
    if (own.bucket == nullptr) continue;
    parameters_.on(replica, p).mutable_grad() =
        used[static_cast<std::size_t>(p)] ? own.views.front() : Tensor();
    // The next backward pass can use the memory again if the step drops the last reference to it.
    // The view of the first of several replicas is the sum, which all of them bind.
    if (own.bucket->layout().alone && (replica > 0 || core_.replicas() == 1)) {
      own.views[static_cast<std::size_t>(replica)].reset();
    }
  }
}

}  // namespace lockstep::train
