#include "strategy/workers.h"

#include <ATen/ops/empty.h>
#include <fmt/format.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <cstring>

#include "lockstep/coll/batch.h"
#include "strategy/meet_before_throwing.h"
#include "tensor/buffer.h"

namespace lockstep::detail {

namespace {

using tensor::buffer_of;
using tensor::plain;

std::int64_t digest_of(const Trait& trait) {
  const std::string text = trait.what + '\0' + trait.value;
  return static_cast<std::int64_t>(XXH3_64bits(text.data(), text.size()) | 1);
}

}  // namespace

void Workers::require_equal_numbers(const coll::Session& session, int local) {
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

void Workers::have_lane_sessions(int lanes) {
  while (static_cast<int>(lane_sessions_.size()) < lanes - 1) {
    lane_sessions_.push_back(session_.split({}, call("sessions of lanes")));
  }
}

void Workers::broadcast(const std::vector<Tensor>& tensors, std::string_view what) {
  for (const Tensor& tensor : tensors) {
    const Tensor dense = plain(tensor);
    session_.broadcast(buffer_of(dense), coll::Root{0}, call(what, dense.sizes()));
    if (dense.data_ptr() != tensor.data_ptr()) tensor.detach().copy_(dense);
  }
}

Tensor Workers::from_chief(const Tensor& tensor, std::string_view what) {
  Tensor copy = plain(tensor).clone();
  broadcast({copy}, what);
  return copy;
}

std::uint64_t Workers::from_chief(std::uint64_t number, std::string_view what) {
  auto word = static_cast<std::int64_t>(number);
  session_.broadcast(std::span(&word, 1), coll::Root{0}, call(what));
  return static_cast<std::uint64_t>(word);
}

std::vector<Tensor> Workers::gather(const Tensor& tensor, std::string_view what) {
  const Tensor own = plain(tensor);
  std::vector<std::int64_t> sizes = own.sizes().vec();
  sizes.insert(sizes.begin(), count());
  const Tensor all = at::empty(sizes, own.options());
  session_.all_gather(buffer_of(own), buffer_of(all), {}, call(what, own.sizes()));
  return all.unbind(0);
}

std::vector<std::int64_t> Workers::gather(std::span<const std::int64_t> numbers,
                                          std::string_view what) {
  std::vector<std::int64_t> all(numbers.size() * static_cast<std::size_t>(count()));
  session_.all_gather(numbers, std::span(all), {}, call(what));
  return all;
}

void Workers::sum(std::span<std::int64_t> numbers, std::string_view what) {
  const std::vector<std::int64_t> all = gather(numbers, what);
  std::fill(numbers.begin(), numbers.end(), 0);
  for (std::size_t i = 0; i < all.size(); ++i) numbers[i % numbers.size()] += all[i];
}

void Workers::require_alike(std::string_view subject, const std::vector<Trait>& traits) {
  const auto own_length = static_cast<std::int64_t>(traits.size());
  const std::vector<std::int64_t> lengths = gather(std::span(&own_length, 1), subject);
  // As long as the longest list; no entry is 0.
  std::vector<std::int64_t> digests(
      static_cast<std::size_t>(*std::max_element(lengths.begin(), lengths.end())), 0);
  for (std::size_t i = 0; i < traits.size(); ++i) digests[i] = digest_of(traits[i]);
  const std::vector<std::int64_t> all = gather(digests, subject);
  for (std::size_t entry = 0; entry < digests.size(); ++entry) {
    for (int worker = 1; worker < count(); ++worker) {
      if (all[static_cast<std::size_t>(worker) * digests.size() + entry] == all[entry]) continue;
      // Everybody knows by now, and tells the others what it has.
      const std::vector<std::string> texts = gather_texts(
          entry < traits.size() ? traits[entry].what + " " + traits[entry].value : "nothing",
          subject);
      meet_before_throwing(this);
      throw Mismatch(
          fmt::format(
              "{}: worker {} differs from worker 0 in entry {} (of {} and {}): worker 0 has "
              "{}, worker {} has {}. All workers must run the same program on the same data",
              subject, worker, entry, lengths[static_cast<std::size_t>(worker)], lengths[0],
              texts[0], worker, texts[static_cast<std::size_t>(worker)]),
          Code::invalid_argument, {worker});
    }
  }
}

std::vector<std::string> Workers::gather_texts(std::string text, std::string_view what) {
  constexpr std::size_t kWords = 16;
  text.resize(kWords * sizeof(std::int64_t), '\0');
  std::vector<std::int64_t> words(kWords);
  std::memcpy(words.data(), text.data(), text.size());
  const std::vector<std::int64_t> all = gather(words, what);
  std::vector<std::string> texts;
  for (std::size_t w = 0; w < all.size(); w += kWords) {
    std::string each(text.size(), '\0');
    std::memcpy(each.data(), &all[w], each.size());
    each.resize(std::min(each.find('\0'), each.size()));
    texts.push_back(std::move(each));
  }
  return texts;
}

}  // namespace lockstep::detail
