#include "strategy/workers.h"

#include <ATen/ops/empty.h>
#include <fmt/format.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>

#include "lockstep/coll/batch.h"
#include "tensor/dtype.h"

namespace lockstep::detail {

namespace {

coll::Buffer buffer_of(const Tensor& dense) {
  return {tensor::to_dtype(dense.scalar_type()), dense.data_ptr(),
          static_cast<std::size_t>(dense.numel())};
}

Tensor dense_copy(const Tensor& tensor) {
  return tensor.detach().resolve_conj().resolve_neg().clone(at::MemoryFormat::Contiguous);
}

}  // namespace

Workers::Workers(coll::Session& session, int local) : session_(session) {
  if (session.replicas() == local * session.size() &&
      session.first_replica() == local * session.rank()) {
    return;
  }
  throw ConfigError(fmt::format(
      "worker {} has {} replicas, but the {} workers have {} together: every worker must have the "
      "same number of devices; give each the same {{.devices}}",
      session.rank(), local, session.size(), session.replicas()));
}

int Workers::index_on_host() const {
  int before = 0;
  for (int rank = 0; rank < index(); ++rank)
    before += session_.host(rank) == session_.host(index());
  return before;
}

void Workers::broadcast(const std::vector<Tensor>& tensors, std::string_view what) {
  for (const Tensor& tensor : tensors) {
    const Tensor dense = tensor.is_contiguous() ? tensor.detach() : dense_copy(tensor);
    session_.broadcast(buffer_of(dense), coll::Root{0}, {.name = what, .shape = dense.sizes()});
    if (!tensor.is_contiguous()) tensor.detach().copy_(dense);
  }
}

Tensor Workers::from_chief(const Tensor& tensor, std::string_view what) {
  Tensor copy = dense_copy(tensor);
  broadcast({copy}, what);
  return copy;
}

std::uint64_t Workers::from_chief(std::uint64_t number, std::string_view what) {
  auto word = static_cast<std::int64_t>(number);
  session_.broadcast(std::span(&word, 1), coll::Root{0}, {.name = what});
  return static_cast<std::uint64_t>(word);
}

std::vector<Tensor> Workers::gather(const Tensor& tensor, std::string_view what) {
  const Tensor own = dense_copy(tensor);
  std::vector<std::int64_t> sizes = own.sizes().vec();
  sizes.insert(sizes.begin(), count());
  const Tensor all = at::empty(sizes, own.options());
  session_.all_gather(buffer_of(own), buffer_of(all), {}, {.name = what, .shape = own.sizes()});
  return all.unbind(0);
}

std::vector<std::int64_t> Workers::gather(std::span<const std::int64_t> numbers,
                                          std::string_view what) {
  std::vector<std::int64_t> all(numbers.size() * static_cast<std::size_t>(count()));
  session_.all_gather(numbers, std::span(all), {}, {.name = what});
  return all;
}

void Workers::sum(std::span<std::int64_t> numbers, std::string_view what) {
  const std::vector<std::int64_t> all = gather(numbers, what);
  std::fill(numbers.begin(), numbers.end(), 0);
  for (std::size_t i = 0; i < all.size(); ++i) numbers[i % numbers.size()] += all[i];
}

void Workers::require_alike(std::string_view subject, const std::vector<Trait>& traits) {
  std::vector<std::int64_t> digests;
  for (const Trait& trait : traits) {
    const std::string text = trait.what + '\0' + trait.value;
    digests.push_back(static_cast<std::int64_t>(XXH3_64bits(text.data(), text.size())));
  }
  // Lists of different lengths: told apart before they are compared.
  const std::int64_t length = static_cast<std::int64_t>(digests.size());
  const std::vector<std::int64_t> lengths = gather(std::span(&length, 1), subject);
  for (std::size_t worker = 0; worker < lengths.size(); ++worker) {
    if (lengths[worker] == lengths[0]) continue;
    throw Mismatch(
        fmt::format("{}: worker {} has {} entries, worker 0 has {}; all workers must run "
                    "the same program",
                    subject, worker, lengths[worker], lengths[0]),
        Code::invalid_argument, {static_cast<int>(worker)});
  }
  const std::vector<std::int64_t> all = gather(digests, subject);
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (all[i] == all[i % traits.size()]) continue;
    const auto worker = static_cast<int>(i / traits.size());
    const Trait& own = traits[i % traits.size()];
    throw Mismatch(fmt::format("{}: worker {} differs from worker 0 in {} (worker {} has: {})",
                               subject, worker, own.what, index(), own.value),
                   Code::invalid_argument, {worker});
  }
}

}  // namespace lockstep::detail
