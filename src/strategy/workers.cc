#include "strategy/workers.h"

#include <ATen/ops/empty.h>
#include <fmt/format.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <cstring>

#include "base/printable.h"
#include "lockstep/coll/batch.h"
#include "strategy/meet_before_throwing.h"
#include "strategy/verb.h"
#include "tensor/buffer.h"
#include "tensor/torch_text.h"

namespace lockstep::detail {

namespace {

using tensor::buffer_of;
using tensor::plain;

/// What messages say of a call: the user's verb if there is one, what it is about, and the types of
/// what was given.
std::string described(std::string_view what, std::string_view types = {}) {
  std::string text(what == Verb::subject() ? std::string_view() : what);
  if (!types.empty()) text += fmt::format("{}{}", text.empty() ? "" : " ", types);
  return Verb::describe(text);
}

coll::Buffer bytes_of(std::string& text) { return {DType::uint8, text.data(), text.size()}; }

[[noreturn]] void throw_damaged(std::string_view what) {
  throw DataError(
      fmt::format("{}: another worker sent texts whose lengths do not fit together", what));
}

std::int64_t digest_of(const Trait& trait) {
  const std::string text = trait.what + '\0' + trait.value;
  return static_cast<std::int64_t>(XXH3_64bits(text.data(), text.size()));
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
    session_.broadcast(buffer_of(dense), coll::Root{0},
                       call(what, dense.sizes(), described(what, tensor::type_text(tensor))),
                       Verb::place());
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
  session_.broadcast(std::span(&word, 1), coll::Root{0}, call(what, {}, described(what)),
                     Verb::place());
  return static_cast<std::uint64_t>(word);
}

std::string Workers::text_from_chief(const std::string& text, std::string_view what) {
  std::string result = text;
  result.resize(from_chief(text.size(), what));
  session_.broadcast(bytes_of(result), coll::Root{0}, call(what, {}, described(what)),
                     Verb::place());
  return result;
}

// Type and number of axes, the axes, the elements: what the others have is not looked at.
Tensor Workers::any_from_chief(const Tensor& tensor, std::string_view what) {
  constexpr std::int64_t kNone = -1;
  const bool sends = is_chief() && tensor.defined() && tensor.layout() == at::kStrided;
  const std::string description =
      described(what, is_chief() ? tensor::type_text(tensor) : std::string("what the chief has"));
  const auto take = [&](std::vector<std::int64_t>& words) {
    session_.broadcast(std::span(words), coll::Root{0}, call(what, {}, description), Verb::place());
  };
  std::vector<std::int64_t> kind = {kNone, 0};
  if (sends) kind = {static_cast<std::int64_t>(tensor.scalar_type()), tensor.dim()};
  take(kind);
  if (kind[0] == kNone) {
    throw InvalidUsage(fmt::format(
        "{}: the chief's tensor is undefined or sparse; give a dense one", description));
  }
  std::vector<std::int64_t> sizes(static_cast<std::size_t>(kind[1]));
  if (sends) sizes = tensor.sizes().vec();
  if (!sizes.empty()) take(sizes);
  const auto options = at::TensorOptions().dtype(static_cast<at::ScalarType>(kind[0]));
  const Tensor result = sends ? plain(tensor).clone() : at::empty(sizes, options);
  session_.broadcast(buffer_of(result), coll::Root{0}, call(what, sizes, description),
                     Verb::place());
  return result;
}

void Workers::barrier(std::string_view what, std::chrono::nanoseconds timeout) {
  const std::string description = described(what);
  coll::CallOptions options = call(what, {}, description);
  if (timeout.count() != 0) options.timeout = timeout;
  session_.barrier(options, Verb::place());
}

std::vector<Tensor> Workers::gather(const Tensor& tensor, std::string_view what) {
  const Tensor own = plain(tensor);
  std::vector<std::int64_t> sizes = own.sizes().vec();
  sizes.insert(sizes.begin(), count());
  const Tensor all = at::empty(sizes, own.options());
  session_.all_gather(buffer_of(own), buffer_of(all), {},
                      call(what, own.sizes(), described(what, tensor::type_text(tensor))),
                      Verb::place());
  return all.unbind(0);
}

std::vector<std::int64_t> Workers::gather(std::span<const std::int64_t> numbers,
                                          std::string_view what) {
  std::vector<std::int64_t> all(numbers.size() * static_cast<std::size_t>(count()));
  session_.all_gather(numbers, std::span(all), {}, call(what, {}, described(what)), Verb::place());
  return all;
}

// Each as its length and its bytes, one after another; how many bytes each worker has goes first.
std::vector<std::string> Workers::gather(const std::vector<std::string>& texts,
                                         std::string_view what) {
  std::string own;
  for (const std::string& text : texts) {
    const std::uint64_t length = text.size();
    own.append(reinterpret_cast<const char*>(&length), sizeof(length));
    own += text;
  }
  const auto bytes = static_cast<std::int64_t>(own.size());
  std::vector<std::uint64_t> counts;
  std::uint64_t total = 0;
  for (const std::int64_t each : gather(std::span(&bytes, 1), what)) {
    if (each < 0) throw_damaged(what);
    counts.push_back(static_cast<std::uint64_t>(each));
    total += counts.back();
  }
  std::string all(total, '\0');
  session_.all_gather(bytes_of(own), bytes_of(all), counts, call(what, {}, described(what)),
                      Verb::place());
  std::vector<std::string> result;
  for (std::size_t at = 0; at < all.size();) {
    std::uint64_t length = 0;
    if (all.size() - at < sizeof(length)) throw_damaged(what);
    std::memcpy(&length, &all[at], sizeof(length));
    at += sizeof(length);
    if (length > all.size() - at) throw_damaged(what);
    result.push_back(all.substr(at, length));
    at += length;
  }
  return result;
}

void Workers::sum(std::span<std::int64_t> numbers, std::string_view what) {
  const std::vector<std::int64_t> all = gather(numbers, what);
  std::fill(numbers.begin(), numbers.end(), 0);
  for (std::size_t i = 0; i < all.size(); ++i) numbers[i % numbers.size()] += all[i];
}

void Workers::require_alike(std::string_view subject, const std::vector<Trait>& traits) {
  const Comparing group{
      .gather = [&](const std::string& own) { return gather(std::vector{own}, subject); },
      .before_throwing = [&] { meet_before_throwing(this); }};
  detail::require_alike(group, subject, traits);
}

void require_alike(const Comparing& group, std::string_view subject,
                   const std::vector<Trait>& traits) {
  std::string own(traits.size() * sizeof(std::int64_t), '\0');
  for (std::size_t i = 0; i < traits.size(); ++i) {
    const std::int64_t digest = digest_of(traits[i]);
    std::memcpy(&own[i * sizeof(digest)], &digest, sizeof(digest));
  }
  const std::vector<std::string> digests = group.gather(own);
  const auto entries = [&](std::size_t worker) {
    return digests[worker].size() / sizeof(std::int64_t);
  };
  // Empty behind the last one.
  const auto entry_of = [&](std::size_t worker, std::size_t entry) {
    const std::string_view all = digests[worker];
    return entry < entries(worker) ? all.substr(entry * sizeof(std::int64_t), sizeof(std::int64_t))
                                   : std::string_view();
  };
  std::size_t longest = 0;
  for (std::size_t worker = 0; worker < digests.size(); ++worker) {
    longest = std::max(longest, entries(worker));
  }
  for (std::size_t entry = 0; entry < longest; ++entry) {
    for (std::size_t worker = 1; worker < digests.size(); ++worker) {
      if (entry_of(worker, entry) == entry_of(0, entry)) continue;
      // Everybody knows by now, and tells the others what it has.
      const std::vector<std::string> texts = group.gather(
          entry < traits.size() ? traits[entry].what + " " + traits[entry].value : "nothing");
      group.before_throwing();
      throw Mismatch(
          fmt::format("{}: worker {} differs from worker 0 in entry {} (of {} and {}): worker 0 "
                      "has {}, worker {} has {}{}. All workers must run the same program on the "
                      "same data",
                      subject, worker, entry, entries(worker), entries(0), printable(texts[0]),
                      worker, printable(texts[worker]), Verb::place_text()),
          Code::invalid_argument, {static_cast<int>(worker)});
    }
  }
}

}  // namespace lockstep::detail
