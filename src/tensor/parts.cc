#include "tensor/parts.h"

#include <ATen/Parallel.h>
#include <ATen/TensorIterator.h>

#include <cstdint>

namespace lockstep::tensor {

void in_parts(const Tensor& tensor, FunctionRef<void(std::size_t, std::size_t)> work) {
  const std::int64_t count = tensor.numel();
  if (kPartsAreSerial || count <= at::internal::GRAIN_SIZE || at::get_num_threads() == 1) {
    if (count > 0) work(0, static_cast<std::size_t>(count));
    return;
  }
  const Tensor flat = tensor.detach().as_strided({count}, {1});
  const auto* const memory = static_cast<const char*>(flat.data_ptr());
  at::TensorIterator over =
      at::TensorIteratorConfig().resize_outputs(false).add_borrowed_input(flat).build();
  over.for_each([&](char** data, const std::int64_t*, std::int64_t inner, std::int64_t outer) {
    const auto begin = static_cast<std::size_t>(*data - memory) / flat.itemsize();
    work(begin, begin + static_cast<std::size_t>(inner * outer));
  });
}

}  // namespace lockstep::tensor
