#include "train/non_finite.h"

#include <ATen/ops/aminmax.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/view_as_real.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>

#include <cmath>

namespace lockstep::train {

namespace {

/// Real numbers of at least 32 bits.
Tensor numbers_of(const Tensor& gradient) {
  const Tensor values = gradient.is_sparse() ? gradient.coalesce()._values() : gradient;
  const Tensor real = values.is_complex() ? at::view_as_real(values.resolve_conj()) : values;
  const bool narrow = real.scalar_type() == at::kHalf || real.scalar_type() == at::kBFloat16;
  return narrow ? real.to(at::kFloat) : real;
}

}  // namespace

bool is_finite(const Tensor& gradient) {
  const at::NoGradGuard not_recorded;
  const Tensor numbers = numbers_of(gradient);
  if (numbers.numel() == 0) return true;
  const auto [least, greatest] = at::aminmax(numbers);  // both are NaN if there is one
  return std::isfinite(least.item<double>()) && std::isfinite(greatest.item<double>());
}

std::string describe_non_finite(const Tensor& gradient) {
  const at::NoGradGuard not_recorded;
  const Tensor numbers = numbers_of(gradient).flatten();
  const Tensor where = at::isfinite(numbers).logical_not().nonzero().flatten();
  const auto first = where[0].item<std::int64_t>();
  return fmt::format("{} of {} elements, the first ({}) at {}", where.numel(), numbers.numel(),
                     numbers[first].item<double>(), first);
}

}  // namespace lockstep::train
