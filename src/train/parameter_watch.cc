#include "train/parameter_watch.h"

namespace lockstep::train {

void ParameterWatch::begin() {
  seen_.clear();
  for (const Tensor& parameter : parameters_) seen_.push_back(look_at(parameter));
  state_.begin();
  step_failed_ = false;
}

void ParameterWatch::accept(int parameter) {
  const auto number = static_cast<std::size_t>(parameter);
  seen_[number] = look_at(parameters_[number]);
}

bool ParameterWatch::has_changed() const {
  for (std::size_t i = 0; i < seen_.size(); ++i) {
    if (look_at(parameters_[i]) != seen_[i]) return true;
  }
  return step_failed_ || state_.has_changed();
}

void ParameterWatch::end_evaluations() {
  begin();
  evaluating_ = false;
}

void ParameterWatch::cancel_evaluations() {
  if (evaluating_) end_evaluations();
}

bool ParameterWatch::report() {
  reported_ = late_ || (!evaluating_ && has_changed());
  return reported_;
}

void ParameterWatch::note_late_change() { late_ = !evaluating_ && !reported_ && has_changed(); }

ParameterWatch::Look ParameterWatch::look_at(const Tensor& parameter) {
  const at::TensorImpl& impl = *parameter.unsafeGetTensorImpl();
  return {impl.has_storage() ? impl.storage().data() : nullptr,
          impl.version_counter().current_version()};
}

}  // namespace lockstep::train
