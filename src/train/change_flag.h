// ChangeFlag: tells all workers whether something other than the optimizer has changed a replica's
// parameters. The flag is one more element of a bucket and is summed with the gradients, so it
// costs no call of its own. If no bucket has room for it, the workers make one more call.
//
//   1. ChangeFlag(layouts)  reserves the element, before the buckets are made
//   2. attach(buckets)      once, when the buckets are made
//   3. write()              in each step, before the bucket is sent
//   4. is_set()             in each step, when the bucket holds the sum
//
// Threads: write() for different replicas at the same time. All other functions by one thread while
// the replicas wait.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "strategy/workers.h"
#include "train/bucket.h"
#include "train/bucket_plan.h"

namespace lockstep::train {

class ChangeFlag {
 public:
  /// Adds a cache line to the last layout that is not `alone`, if there is one.
  explicit ChangeFlag(std::vector<BucketLayout>& layouts);
  /// The buckets of these layouts.
  void attach(const Buckets& buckets);

  /// Whether something other than the optimizer has changed the parameters of a local replica.
  void write(int replica, bool changed);
  /// A collective if no bucket had room: all workers call it. `changed` has what write() was given
  /// for each local replica. True if it was true for any replica of any worker. The collective
  /// compares `scale` (step_scale.h).
  [[nodiscard]] bool is_set(detail::Workers& workers, const std::vector<bool>& changed,
                            const std::string& scale) const;

  /// The bytes that the flag adds to this bucket.
  [[nodiscard]] std::int64_t bytes_in(std::size_t bucket) const;

 private:
  struct Place {
    std::size_t bucket = 0;
    std::int64_t element = 0;
    std::int64_t bytes = 0;
  };

  std::optional<Place> place_;  // none: every gradient has a bucket to itself
  std::vector<Tensor> flags_;   // one element by local replica; the first one's becomes the sum
};

}  // namespace lockstep::train
