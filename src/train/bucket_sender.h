// BucketSender: sums full buckets over all replicas of all workers, in one of two ways.
//
//   during backward:  send_full() starts the next buckets, as far as they are full, in the
//                     background of one session; finish() waits for the sums.
//   after backward:   reduce() lets all lanes take slices of the buckets, each lane over its own
//                     session, and returns with the sums.
//
// All workers start the same buckets in the same order.
//
// Threads: send_full() on any thread. All other functions by one thread while the replicas wait.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "lockstep/coll/session.h"
#include "strategy/core.h"
#include "train/bucket.h"
#include "train/bucket_slices.h"

namespace lockstep::train {

class BucketSender {
 public:
  /// The first two outlive this object. The lanes' sessions exist. `wire` is for float32.
  BucketSender(detail::StrategyCore& core, const Buckets& buckets, LaneSlices slices,
               coll::WireType wire);
  /// Waits for the buckets under way.
  ~BucketSender();
  BucketSender(const BucketSender&) = delete;
  BucketSender& operator=(const BucketSender&) = delete;

  [[nodiscard]] const LaneSlices& slices() const noexcept { return slices_; }

  /// What messages about buckets sent during backward name: where the user wrote the last apply().
  void set_call_site(Here here);
  /// What scales the step (step_scale.h). Workers whose buckets have another one get a Mismatch.
  void set_scale(const std::string& scale);

  void send_full();
  /// Sends the rest of the buckets, full or not. How many have been sent is different on each
  /// worker, since others may be further in backward.
  void send_all();
  void reduce(Here here);
  /// Until all buckets that were sent are summed. Throws the failure of one.
  void finish();
  /// The same without throwing, for when the failure is known.
  void drain() noexcept;
  /// All buckets are empty, and the next to be sent is the first.
  void begin_anew();

 private:
  [[nodiscard]] detail::Workers& workers() const noexcept { return *core_.workers(); }
  [[nodiscard]] coll::CallOptions call(std::size_t bucket) const;
  void reduce_slices(int lane, Here here);

  detail::StrategyCore& core_;
  const Buckets& buckets_;
  LaneSlices slices_;
  coll::WireType wire_;
  std::string name_;                       // of all buckets, for the comparison
  std::vector<std::string> descriptions_;  // by bucket, for messages

  Mutex mutex_;
  std::size_t next_ GUARDED_BY(mutex_) = 0;  // bucket to be sent
  std::vector<coll::Work> works_ GUARDED_BY(mutex_);
  Here here_ GUARDED_BY(mutex_) = Here::now();
};

}  // namespace lockstep::train
