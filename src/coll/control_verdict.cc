// Why the generation ends: proposals, which of them is taken, and the verdict.
#include <fmt/format.h>

#include <algorithm>
#include <tuple>
#include <utility>

#include "base/log.h"
#include "coll/control_peer.h"
#include "transport/mismatch.h"

namespace lockstep::coll {
namespace {

bool blames_only(const Status& cause, int rank) {
  return cause.kind() == ErrorKind::peer_lost && cause.culprits() == std::vector<int>{rank};
}

/// Which of two proposals the ranks take when the hub cannot decide; the same order everywhere.
bool goes_before(const wire::Abort& a, const wire::Abort& b, int hub) {
  const auto order = [hub](const wire::Abort& abort) {
    return std::tuple(!blames_only(abort.cause, hub), abort.origin, abort.cause.culprits(),
                      abort.cause.message());
  };
  return order(a) < order(b);
}

/// Two losses as one; the first alone if the second is none or says nothing new.
Status together(const Status& first, const Status& second) {
  std::vector<int> culprits = first.culprits();
  for (const int rank : second.culprits()) {
    if (std::find(culprits.begin(), culprits.end(), rank) == culprits.end()) {
      culprits.push_back(rank);
    }
  }
  const bool both_lost =
      first.kind() == ErrorKind::peer_lost && second.kind() == ErrorKind::peer_lost;
  if (!both_lost || culprits.size() == first.culprits().size()) return first;
  std::sort(culprits.begin(), culprits.end());
  return {first.kind(), first.code(), first.message() + "; " + second.message(),
          std::move(culprits)};
}

}  // namespace

void Control::propose(const wire::Abort& abort, const Peer* from) {
  if (concluded_) return;
  if (is_hub()) {  // it decides alone; the others get the verdict
    if (proposal_) {
      // Two ranks blame each other: believe the one that is still connected to the hub. And this
      // rank is well.
      const auto& blamed = proposal_->cause.culprits();
      const bool accused = std::find(blamed.begin(), blamed.end(), abort.origin) != blamed.end();
      if (!accused && !blames_only(abort.cause, rank_)) {
        proposal_->cause = together(proposal_->cause, abort.cause);
      }
    } else {
      proposal_ = abort;
    }
    return;
  }
  if (proposal_ && !goes_before(abort, *proposal_, hub_)) return;
  proposal_ = abort;
  send_to_all(wire::FrameType::abort, wire::encode(*proposal_), from);
}

bool Control::decider_gone() const noexcept {
  if (is_hub()) return false;
  const Peer* hub = find(hub_);
  if (hub != nullptr && !hub->unproven) return hub->lost;
  const auto lack = lacks_.find(hub_);
  return lack != lacks_.end() && lack->second.given_up;
}

void Control::decide(Time now) {
  if (concluded_ || !proposal_) return;
  if (!is_hub() && !decider_gone()) {
    settled_.reset();  // it was this rank's to decide before it left
    return;
  }
  if (!settled_) settled_ = now + patience();
  // Once all have left, no pulse comes that could say more, and a peer that closes its connection
  // would not get a later verdict.
  const bool is_last_chance = is_hub() && has_said_all();
  if (now < *settled_ && !is_last_chance) return;
  wire::Abort verdict = *proposal_;
  verdict.standing = wire::Standing::verdict;
  if (is_undecided(verdict.cause)) verdict.cause = with_all_requests(verdict.cause);
  // As the others will read it: a frame does not hold every text in full.
  wire::Abort as_read;
  const auto frame = wire::encode(verdict);
  if (wire::decode(frame, size_, as_read).ok()) verdict = as_read;
  conclude(verdict, nullptr);
}

Duration Control::patience() const noexcept {
  if (size_ == 2) return {};  // the last of two has no other rank to agree with
  // A rank that has left lets those that stay decide first: they may still reach each other.
  if (!is_hub()) return left(rank_) ? 2 * timing_.settle : timing_.settle;
  if (is_undecided(proposal_->cause)) return (hub_spacing() + 1) * timing_.pulse;
  return proposal_->cause.kind() == ErrorKind::peer_lost ? timing_.gather : Duration{};
}

bool Control::is_undecided(const Status& cause) const noexcept {
  const auto& culprits = cause.culprits();
  return is_hub() && size_ > 2 && history_ != nullptr && cause.kind() == ErrorKind::mismatch &&
         culprits.size() == 2 && !left(culprits[0]) && !left(culprits[1]);
}

Status Control::with_all_requests(const Status& cause) const {
  const int one = cause.culprits().front();
  const int other = cause.culprits().back();
  if (const Status whole = with_latest_requests(cause);
      whole.culprits().size() < cause.culprits().size()) {
    return whole;
  }
  // For operations of a subgroup, the hub knows which members have asked for the same.
  const std::vector<int> minority = census_.minority(one, other);
  const auto is_one_of_them = [&](int rank) {
    return std::find(minority.begin(), minority.end(), rank) != minority.end();
  };
  if (is_one_of_them(one) == is_one_of_them(other)) return cause;
  return {cause.kind(), cause.code(),
          fmt::format("{}\nmost ranks of the group have asked for the same as rank {}",
                      cause.message(), is_one_of_them(one) ? other : one),
          minority};
}

Status Control::with_latest_requests(const Status& cause) const {
  std::vector<std::optional<wire::Descriptor>> latest = latest_;
  latest[static_cast<std::size_t>(rank_)] = history_->latest().descriptor;
  const auto of = [&](int rank) -> const auto& { return latest[static_cast<std::size_t>(rank)]; };
  const auto& one = of(cause.culprits().front());
  const auto& other = of(cause.culprits().back());
  if (!one || !other || one->sequence != other->sequence) return cause;
  if (wire::fingerprint(*one) == wire::fingerprint(*other)) return cause;
  const std::uint64_t sequence = one->sequence;
  for (auto& request : latest) {
    if (request && request->sequence != sequence) request.reset();
  }
  return transport::mismatch(sequence, latest);
}

void Control::conclude(const wire::Abort& verdict, const Peer* from) {
  if (concluded_) return;
  concluded_ = true;
  verdict_ = verdict;
  verdict_->standing = wire::Standing::verdict;
  failure_.set(verdict.cause);
  log_debug("rank {}: the generation is over: {}", rank_, verdict.cause.message());
  send_to_all(wire::FrameType::abort, wire::encode(verdict), from);
}

}  // namespace lockstep::coll
