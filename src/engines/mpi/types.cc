#include "engines/mpi/types.h"

#include "engines/mpi/error.h"
#include "kernel/reduce.h"

namespace lockstep::mpi {
namespace {

/// Called by MPI: both = op(in, both).
template <Op op, DType dtype>
void combine(void* in, void* both, int* count, MPI_Datatype* /*type*/) noexcept {
  constexpr std::uint8_t kMerges[] = {0, 1};
  const kernel::Input inputs[] = {{in}, {both}};
  const kernel::Target target{both};
  kernel::reduce({.op = op,
                  .dtype = dtype,
                  .inputs = inputs,
                  .merges = kMerges,
                  .targets = {&target, 1},
                  .count = static_cast<std::size_t>(*count)});
}

template <Op op, DType dtype>
MPI_Op make() {
  constexpr int kCommutes = 1;
  MPI_Op made = MPI_OP_NULL;
  check(MPI_Op_create(&combine<op, dtype>, kCommutes, &made), "MPI_Op_create");
  return made;
}

template <Op op, DType... types>
void make_all(OpTable& table) {
  auto& of_type = table[static_cast<std::size_t>(op)];
  ((of_type[static_cast<std::size_t>(types)] = make<op, types>()), ...);
}

}  // namespace

MPI_Datatype datatype_of(DType type) noexcept {
  switch (type) {
    case DType::float64:
      return MPI_DOUBLE;
    case DType::float32:
      return MPI_FLOAT;
    case DType::float16:
    case DType::bfloat16:
      return MPI_UINT16_T;
    case DType::int8:
      return MPI_INT8_T;
    case DType::int16:
      return MPI_INT16_T;
    case DType::int32:
      return MPI_INT32_T;
    case DType::int64:
      return MPI_INT64_T;
    case DType::uint8:
    case DType::boolean:
      return MPI_UINT8_T;
    case DType::complex64:
      return MPI_C_FLOAT_COMPLEX;
    case DType::complex128:
      return MPI_C_DOUBLE_COMPLEX;
  }
  return MPI_DATATYPE_NULL;
}

Ops::Ops() {
  for (auto& of_type : own_) of_type.fill(MPI_OP_NULL);
  make_all<Op::min, DType::float64, DType::float32>(own_);
  make_all<Op::max, DType::float64, DType::float32>(own_);
  make_all<Op::sum, DType::int8, DType::int16, DType::uint8>(own_);
  make_all<Op::product, DType::int8, DType::int16, DType::uint8>(own_);
  make_all<Op::min, DType::int8, DType::int16, DType::uint8, DType::boolean>(own_);
  make_all<Op::max, DType::int8, DType::int16, DType::uint8, DType::boolean>(own_);
}

MPI_Op Ops::of(Op op, DType type) const noexcept {
  const MPI_Op own = own_[static_cast<std::size_t>(op)][static_cast<std::size_t>(type)];
  if (own != MPI_OP_NULL) return own;
  switch (op) {
    case Op::sum:
    case Op::mean:
      return MPI_SUM;
    case Op::product:
      return MPI_PROD;
    case Op::min:
      return MPI_MIN;
    case Op::max:
      return MPI_MAX;
  }
  return MPI_OP_NULL;
}

}  // namespace lockstep::mpi
