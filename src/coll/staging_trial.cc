#include "coll/staging_trial.h"

#include <algorithm>
#include <chrono>
#include <span>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "coll/plan_carrier.h"
#include "sys/topology.h"

namespace lockstep::coll {
namespace {

using plan::SlotStores;
using plan::Staging;

constexpr Staging kCandidates[] = {
    {.chunk_bytes = 128 << 10, .stores = SlotStores::cached},
    {.chunk_bytes = 512 << 10, .stores = SlotStores::cached},
    {.chunk_bytes = 256 << 10, .stores = SlotStores::around_cache},
    {.chunk_bytes = 512 << 10, .stores = SlotStores::around_cache},
};
/// So much better than the default must another be: less is noise.
constexpr double kWorthIt = 0.95;
/// A machine on which one call takes so long is busy, and what is measured there is not its caches.
constexpr double kBusyMicroseconds = 5'000;
constexpr std::size_t kElements = std::size_t{1} << 20;  // 4 MiB, several chunks of any candidate
constexpr int kCalls = 3;
/// Far from the ids of other groups, which are hashes or kWorld.
constexpr std::uint64_t kTrialGroups = 0x7374'6167'696e'6700;

double microseconds(Duration duration) {
  return std::chrono::duration<double, std::micro>(duration).count();
}

}  // namespace

StagingTrial::StagingTrial(std::shared_ptr<ProcessFabric> fabric, transport::ShmHost& host,
                           GroupSpec here, int rank, const SessionOptions& options,
                           std::shared_ptr<Membership> membership)
    : fabric_(std::move(fabric)),
      host_(host),
      here_(std::move(here)),
      rank_(rank),
      options_(options),
      membership_(std::move(membership)) {
  std::fill(here_.replicas.begin(), here_.replicas.end(), 1);
  options_.algorithms = "all_reduce=staged:64K-";
}

Staging StagingTrial::fastest() {
  const Staging usual;
  if (!is_wanted()) return usual;
  const double usual_time = time(usual);
  if (usual_time > kBusyMicroseconds) return usual;
  Staging best = usual;
  double best_time = usual_time * kWorthIt;
  for (const Staging& candidate : kCandidates) {
    const double taken = time(candidate);
    if (taken >= best_time) continue;
    best = candidate;
    best_time = taken;
  }
  log_debug("ranks of this host stage {} KiB at a time{}: {:.0f} us for 4 MiB, {:.0f} us as usual",
            best.chunk_bytes >> 10,
            best.stores == SlotStores::around_cache ? ", around the cache" : "",
            best == usual ? usual_time : best_time, usual_time);
  return best;
}

Session StagingTrial::group(const Staging& staging) {
  host_.set_staging(staging);
  GroupSpec spec = here_;
  spec.id = kTrialGroups + groups_++;
  return Session(std::make_shared<Session::Impl>(fabric_, carriers_over(fabric_), std::move(spec),
                                                 rank_, options_, membership_));
}

bool StagingTrial::is_wanted() {
  if (host_.ranks() > host_.cores()) return false;
  // Each rank knows its own quota alone.
  std::int32_t processors = sys::usable_processors(host_.cores(), sys::own_cpu_quota());
  group({}).all_reduce(Op::min, std::span(&processors, 1));
  return host_.ranks() <= processors;
}

double StagingTrial::time(const Staging& staging) {
  Session trial = group(staging);
  std::vector<float> values(kElements);
  trial.all_reduce(Op::sum, std::span(values));  // makes the stage, and touches the values
  const MonotonicClock clock;
  Duration shortest = Duration::max();
  for (int call = 0; call < kCalls; ++call) {
    const Time begin = clock.now();
    trial.all_reduce(Op::sum, std::span(values));
    shortest = std::min(shortest, clock.now() - begin);
  }
  double slowest = microseconds(shortest);
  trial.all_reduce(Op::max, std::span(&slowest, 1));
  return slowest;
}

}  // namespace lockstep::coll
