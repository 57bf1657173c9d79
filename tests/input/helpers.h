// What tests of the input share: numbers in, numbers out.
#pragma once

#include <torch/torch.h>

#include <string>
#include <vector>

#include "lockstep/dataset.h"

namespace lockstep::testing {

using Rows = std::vector<std::int64_t>;

/// All numbers of a tensor, as int64.
inline Rows numbers_of(const Tensor& tensor) {
  const Tensor flat = tensor.to(torch::kLong).contiguous().view({-1});
  return {flat.data_ptr<std::int64_t>(), flat.data_ptr<std::int64_t>() + flat.numel()};
}

/// One list of numbers an element.
template <class B>
std::vector<Rows> all_of(const Dataset<Tensor, B>& dataset) {
  std::vector<Rows> all;
  for (const Tensor& element : dataset) all.push_back(numbers_of(element));
  return all;
}

/// The numbers of all elements in a row.
template <class B>
Rows flat(const Dataset<Tensor, B>& dataset) {
  Rows all;
  for (const Rows& element : all_of(dataset)) all.insert(all.end(), element.begin(), element.end());
  return all;
}

/// The message of the exception that is expected of a call.
template <class E, class F>
std::string error_of(const F& call) {
  try {
    call();
  } catch (const E& error) {
    return error.what();
  }
  return "nothing was thrown";
}

inline Rows count(std::int64_t begin, std::int64_t end) {
  Rows rows;
  for (std::int64_t i = begin; i < end; ++i) rows.push_back(i);
  return rows;
}

}  // namespace lockstep::testing
