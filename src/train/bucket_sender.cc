#include "train/bucket_sender.h"

#include <utility>

#include "base/inline_vector.h"

namespace lockstep::train {

namespace {

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

}  // namespace

BucketSender::BucketSender(detail::StrategyCore& core, const Buckets& buckets, LaneSlices slices,
                           coll::WireType wire)
    : core_(core), buckets_(buckets), slices_(std::move(slices)), wire_(wire) {
  set_scale({});
}

BucketSender::~BucketSender() { drain(); }

void BucketSender::set_call_site(Here here) {
  const MutexLock lock(mutex_);
  here_ = here;
}

void BucketSender::set_scale(const std::string& scale) {
  const std::string added = scale.empty() ? "" : ", " + scale;
  std::string name = "gradients" + added;
  if (name == name_) return;
  name_ = std::move(name);
  descriptions_.clear();
  for (const auto& bucket : buckets_) descriptions_.push_back(bucket->description() + added);
}

coll::CallOptions BucketSender::call(std::size_t bucket) const {
  coll::CallOptions options = workers().call(name_, {}, descriptions_[bucket]);
  if (buckets_[bucket]->layout().dtype == at::kFloat) options.wire = wire_;
  return options;
}

void BucketSender::send_full() {
  const MutexLock lock(mutex_);
  while (next_ < buckets_.size() && buckets_[next_]->is_full()) {
    coll::CallOptions options = call(next_);
    const Bucket& bucket = *buckets_[next_++];
    options.background = true;
    works_.push_back(workers().session().start_all_reduce(Op::sum, bucket.inputs(), bucket.sum(),
                                                          options, here_));
  }
}

void BucketSender::send_all() {
  for (const auto& bucket : buckets_) bucket->fill_all();
  send_full();
}

void BucketSender::reduce(Here here) {
  if (slices_.size() == 1) {
    reduce_slices(0, here);
  } else {
    core_.on_lanes([&](int lane) { reduce_slices(lane, here); });
  }
}

/// Meets the slices of the same lane of the other workers.
void BucketSender::reduce_slices(int lane, Here here) {
  if (static_cast<std::size_t>(lane) >= slices_.size()) return;
  for (const BucketSlice& slice : slices_[static_cast<std::size_t>(lane)]) {
    const Bucket& bucket = *buckets_[slice.bucket];
    InlineVector<coll::ConstBuffer, 8> inputs;
    for (const coll::ConstBuffer& each : bucket.inputs()) inputs.push_back(part_of(each, slice));
    const std::span<const coll::ConstBuffer> each_replica = inputs.span();
    workers().session(lane).all_reduce(Op::sum, each_replica, part_of(bucket.sum(), slice),
                                       call(slice.bucket), here);
  }
}

void BucketSender::finish() {
  std::vector<coll::Work> works;
  {
    const MutexLock lock(mutex_);
    works.swap(works_);
  }
  for (coll::Work& work : works) work.wait();
}

void BucketSender::drain() noexcept {
  try {
    finish();
  } catch (...) {  // the rank that failed has reported it
  }
}

void BucketSender::begin_anew() {
  for (const auto& bucket : buckets_) bucket->empty();
  const MutexLock lock(mutex_);
  next_ = 0;
}

}  // namespace lockstep::train
