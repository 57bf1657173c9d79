#include "train/optimizer_sharing.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/log.h"
#include "lockstep/error.h"

namespace lockstep::detail {

namespace {

std::string describe(const std::string& type, const train::Parameters& parameters) {
  const int rest = parameters.count() - 1;
  return rest == 0 ? fmt::format("{} over {}", type, parameters.name(0))
                   : fmt::format("{} over {} and {} more", type, parameters.name(0), rest);
}

}  // namespace

OptimizerSharing::OptimizerSharing(const Shared& shared, const std::string& type)
    : shared_(shared),
      description_(describe(type, shared.parameters)),
      sharers_(shared.parameters.variables.size()) {
  for (int p = 0; p < shared_.parameters.count(); ++p) {
    numbers_.emplace(shared_.parameters.on(0, p).unsafeGetTensorImpl(), p);
  }
}

OptimizerSharing::~OptimizerSharing() {
  if (!list_) return;
  for (const auto& other : list_->others(*this)) {
    for (int p = 0; p < shared_.parameters.count(); ++p) {
      const int theirs = other->number_of(shared_.parameters.on(0, p));
      if (theirs >= 0) other->add_sharers(theirs, -1);
    }
  }
}

void OptimizerSharing::join(const std::shared_ptr<OptimizerList>& list) {
  const auto others = list->others(*this);
  for (const auto& other : others) {
    if (!other->sends_during_backward() || !other->has_arrivals()) continue;
    for (int p = 0; p < shared_.parameters.count(); ++p) {
      if (other->number_of(shared_.parameters.on(0, p)) < 0) continue;
      throw InvalidUsage(
          fmt::format("optimizer: parameter {} is {}'s, too, which is sending the gradients of a "
                      "backward pass. Call its apply() or discard() before another optimizer is "
                      "made",
                      shared_.parameters.name(p), other->description()),
          Code::failed_precondition);
    }
  }
  for (const auto& other : others) {
    for (int p = 0; p < shared_.parameters.count(); ++p) {
      const int theirs = other->number_of(shared_.parameters.on(0, p));
      if (theirs < 0) continue;
      add_sharers(p, 1);
      other->add_sharers(theirs, 1);
    }
  }
  list_ = list;
}

void OptimizerSharing::add_sharers(int parameter, int count) {
  sharers_[static_cast<std::size_t>(parameter)] += count;
  all_sharers_ += count;
}

int OptimizerSharing::number_of(const Tensor& tensor) const {
  const auto found = numbers_.find(tensor.unsafeGetTensorImpl());
  return found != numbers_.end() ? found->second : -1;
}

bool OptimizerSharing::shares_with(const OptimizerSharing& other, int parameter) const {
  return sharers_[static_cast<std::size_t>(parameter)].load() > 0 &&
         other.number_of(shared_.parameters.on(0, parameter)) >= 0;
}

int OptimizerSharing::count_shared() const {
  return static_cast<int>(
      std::count_if(sharers_.begin(), sharers_.end(),
                    [](const std::atomic<int>& others) { return others.load() > 0; }));
}

// The step of another optimizer may take the gradient of a shared parameter, so it must not have
// been sent. The other gradients of its bucket wait with it.
bool OptimizerSharing::sends_during_backward() const {
  return !shares_any() && shared_.exchange.sends_during_backward();
}

bool OptimizerSharing::has_arrivals() const {
  return std::any_of(shared_.arrivals.begin(), shared_.arrivals.end(),
                     [](const train::Arrivals& each) { return !each.order().empty(); });
}

std::string OptimizerSharing::advice() const {
  std::vector<std::string> names;
  for (const auto& other : list_->others(*this)) names.push_back(other->description());
  if (names.empty()) return "";
  return fmt::format(
      ". If the pass was meant for another optimizer ({}), keep it from these parameters: name its "
      "own in backward(inputs=...), freeze these meanwhile (requires_grad_(false)), or call "
      "discard() after it",
      fmt::join(names, "; "));
}

// --- what this optimizer does ------------------------------------------------------------------

void OptimizerSharing::announce_apply() const {
  for (const auto& other : list_->others(*this)) other->lose_passes_to(*this);
}

void OptimizerSharing::announce_step() const {
  for (const auto& other : list_->others(*this)) other->accept_step_of(*this);
}

void OptimizerSharing::announce_discard() const {
  list_->end_passes();
  for (const auto& other : list_->others(*this)) other->lose_gradients_to(*this, "the discard()");
}

void OptimizerSharing::before_arrival(int replica) {
  const train::Arrivals& own = shared_.arrivals[static_cast<std::size_t>(replica)];
  if (own.any_left_behind()) drop_left_behind(replica);
}

void OptimizerSharing::drop_left_behind(int replica) {
  train::Arrivals& own = shared_.arrivals[static_cast<std::size_t>(replica)];
  if (own.any_waiting() && sends_during_backward()) {
    throw InvalidUsage(
        fmt::format("a second backward pass before apply(): gradients of two passes, one of which "
                    "{} has used, are on their way. Step or discard() after each pass{}",
                    taken_by_, advice()),
        Code::failed_precondition);
  }
  for (const int p : own.take_left_behind()) {
    shared_.parameters.on(replica, p).mutable_grad() = Tensor();
    shared_.exchange.forget(replica, p);
    if (warned_of_left_.exchange(true)) continue;
    log_info(
        "{}: the gradient of {} that the pass of {} left behind is dropped, since another pass "
        "begins. To let passes add up use accumulate(); not to compute it, name the other "
        "optimizer's parameters in backward(inputs=...), or freeze these meanwhile "
        "(requires_grad_(false))",
        description_, shared_.parameters.name(p), taken_by_);
  }
}

// --- what another optimizer does ---------------------------------------------------------------

void OptimizerSharing::lose_passes_to(const OptimizerSharing& other) {
  lose_gradients_to(other, "the apply()");
  // An optimizer whose replicas share copies may have fewer of them, and nothing arrives there.
  const std::size_t copies = std::min(shared_.arrivals.size(), other.shared_.arrivals.size());
  bool any = false;
  for (std::size_t c = 0; c < copies; ++c) {
    any = shared_.arrivals[c].leave_behind(other.shared_.arrivals[c].passes()) || any;
  }
  if (!any) return;
  taken_by_ = fmt::format("the apply() of {}", other.description());
  if (sends_during_backward()) shared_.exchange.settle();
}

void OptimizerSharing::lose_gradients_to(const OptimizerSharing& other, const char* call) {
  bool any = false;
  for (int p = 0; p < shared_.parameters.count(); ++p) {
    if (!shares_with(other, p)) continue;
    for (std::size_t c = 0; c < shared_.arrivals.size(); ++c) {
      if (!shared_.arrivals[c].has(p)) continue;
      shared_.arrivals[c].lose(p);
      shared_.exchange.forget(static_cast<int>(c), p);
      any = true;
    }
  }
  if (any) taken_by_ = fmt::format("{} of {}", call, other.description());
}

void OptimizerSharing::accept_step_of(const OptimizerSharing& other) {
  for (int p = 0; p < shared_.parameters.count(); ++p) {
    if (!shares_with(other, p)) continue;
    for (train::ParameterWatch& each : shared_.watches) each.accept(p);
  }
}

}  // namespace lockstep::detail
