#include "lockstep/coll/session.h"

#include <fmt/format.h>

#include <new>
#include <vector>

#include "base/printable.h"
#include "coll/requests.h"
#include "coll/session_impl.h"
#include "lockstep/coll/batch.h"

namespace lockstep::coll {
namespace {

Caller caller(const Session::Impl& impl) {
  return {impl.rank(), impl.size(), impl.spec().replicas[static_cast<std::size_t>(impl.rank())]};
}

/// Each collective is written once, as a function that fills a Call; blocking and asynchronous
/// calls differ only in who carries it out.
template <class Fill>
auto filled(const Session::Impl& impl, const CallOptions& options, Here here, Fill fill) {
  return [=, &impl, &options](Call& call) {
    fill(call, caller(impl));
    fill_options(call, options, here);
  };
}

auto all_reduce_of(Op op, const Inputs& inputs, Buffer output) {
  return [=](Call& call, const Caller& who) { fill_all_reduce(call, who, op, inputs, output); };
}
auto reduce_of(Op op, const Inputs& inputs, Buffer output, Root root) {
  return [=](Call& call, const Caller& who) { fill_reduce(call, who, op, inputs, output, root); };
}
auto broadcast_of(Buffer buffer, Root root) {
  return [=](Call& call, const Caller& who) { fill_broadcast(call, who, buffer, root); };
}
auto all_gather_of(ConstBuffer input, Buffer output, Counts counts) {
  return [=](Call& call, const Caller& who) { fill_all_gather(call, who, input, output, counts); };
}
auto reduce_scatter_of(Op op, const Inputs& inputs, Buffer output, Counts counts) {
  return [=](Call& call, const Caller& who) {
    fill_reduce_scatter(call, who, op, inputs, output, counts);
  };
}
auto gather_of(ConstBuffer input, Buffer output, Root root, Counts counts) {
  return
      [=](Call& call, const Caller& who) { fill_gather(call, who, input, output, root, counts); };
}
auto scatter_of(ConstBuffer input, Buffer output, Root root, Counts counts) {
  return
      [=](Call& call, const Caller& who) { fill_scatter(call, who, input, output, root, counts); };
}
auto all_to_all_of(ConstBuffer input, Buffer output) {
  return [=](Call& call, const Caller& who) { fill_all_to_all(call, who, input, output); };
}
auto barrier_of() {
  return [](Call& call, const Caller&) { fill_barrier(call); };
}
auto send_of(ConstBuffer input) {
  return [=](Call& call, const Caller&) { fill_send(call, input); };
}
auto receive_of(Buffer output) {
  return [=](Call& call, const Caller&) { fill_receive(call, output); };
}

/// The group that carries messages between the caller and a peer.
Session::Impl& messages(Session::Impl& impl, int from, int to, const char* argument) {
  const int peer = impl.rank() == from ? to : from;
  check_peer(caller(impl), peer, argument);
  if (from == to)
    throw InvalidUsage(fmt::format("{} is rank {}, the caller itself", argument, from));
  return impl.making_group([&]() -> Session::Impl& { return impl.messages(from, to); });
}

/// A child keeps what it has inherited until it ends: closing it would speak for the parent, and
/// wait for threads that are not there.
void let_go(std::shared_ptr<Session::Impl>& impl) noexcept {
  if (!impl) return;
  if (!impl->is_parents()) return impl->close();
  // Never destroyed, and never used again. Without memory for the list it is kept by nobody.
  auto* const held = new (std::nothrow) std::shared_ptr<Session::Impl>(impl);
  try {
    static auto* const kept = new std::vector<std::shared_ptr<Session::Impl>*>;
    kept->push_back(held);
  } catch (...) {  // NOLINT(bugprone-empty-catch)
  }
}

}  // namespace

Session::Session(std::shared_ptr<Impl> impl) noexcept : impl_(std::move(impl)) {}
Session::Session(Session&&) noexcept = default;
Session& Session::operator=(Session&& other) noexcept {
  if (impl_ != other.impl_) let_go(impl_);
  impl_ = std::move(other.impl_);
  return *this;
}
Session::~Session() { let_go(impl_); }

void Session::close() noexcept {
  if (impl_ && !impl_->is_parents()) impl_->close();
}

int Session::rank() const noexcept { return impl_->rank(); }
int Session::size() const noexcept { return impl_->size(); }
int Session::host(int rank) const {
  check_peer(caller(*impl_), rank, "rank");
  return impl_->spec().hosts[static_cast<std::size_t>(rank)];
}
int Session::replicas() const noexcept { return impl_->layout().replicas(); }
int Session::first_replica() const noexcept { return impl_->layout().first(impl_->rank()); }
std::string Session::transport() const {
  return impl_->generation().transport(impl_->spec().members);
}
std::uint64_t Session::generation() const noexcept { return impl_->generation().generation(); }

void Session::all_reduce(Op op, Buffer in_place, const CallOptions& options, Here here) {
  all_reduce(op, Inputs(ConstBuffer(in_place)), in_place, options, here);
}
void Session::all_reduce(Op op, Inputs inputs, Buffer output, const CallOptions& options,
                         Here here) {
  if (impl_->is_small(op, inputs, output, options)) {
    return impl_->naming_shortages(
        [&] { impl_->executor().run_small(op, inputs.list()[0], output, here); });
  }
  impl_->run(filled(*impl_, options, here, all_reduce_of(op, inputs, output)));
}
Work Session::start_all_reduce(Op op, Buffer in_place, const CallOptions& options, Here here) {
  return start_all_reduce(op, Inputs(ConstBuffer(in_place)), in_place, options, here);
}
Work Session::start_all_reduce(Op op, Inputs inputs, Buffer output, const CallOptions& options,
                               Here here) {
  return impl_->start(filled(*impl_, options, here, all_reduce_of(op, inputs, output)));
}

void Session::reduce(Op op, Inputs inputs, Buffer output, Root root, const CallOptions& options,
                     Here here) {
  impl_->run(filled(*impl_, options, here, reduce_of(op, inputs, output, root)));
}
Work Session::start_reduce(Op op, Inputs inputs, Buffer output, Root root,
                           const CallOptions& options, Here here) {
  return impl_->start(filled(*impl_, options, here, reduce_of(op, inputs, output, root)));
}

void Session::broadcast(Buffer buffer, Root root, const CallOptions& options, Here here) {
  impl_->run(filled(*impl_, options, here, broadcast_of(buffer, root)));
}
Work Session::start_broadcast(Buffer buffer, Root root, const CallOptions& options, Here here) {
  return impl_->start(filled(*impl_, options, here, broadcast_of(buffer, root)));
}

void Session::all_gather(ConstBuffer input, Buffer output, Counts counts,
                         const CallOptions& options, Here here) {
  impl_->run(filled(*impl_, options, here, all_gather_of(input, output, counts)));
}
Work Session::start_all_gather(ConstBuffer input, Buffer output, Counts counts,
                               const CallOptions& options, Here here) {
  return impl_->start(filled(*impl_, options, here, all_gather_of(input, output, counts)));
}

void Session::reduce_scatter(Op op, Inputs inputs, Buffer output, Counts counts,
                             const CallOptions& options, Here here) {
  impl_->run(filled(*impl_, options, here, reduce_scatter_of(op, inputs, output, counts)));
}
Work Session::start_reduce_scatter(Op op, Inputs inputs, Buffer output, Counts counts,
                                   const CallOptions& options, Here here) {
  return impl_->start(filled(*impl_, options, here, reduce_scatter_of(op, inputs, output, counts)));
}

void Session::gather(ConstBuffer input, Buffer output, Root root, Counts counts,
                     const CallOptions& options, Here here) {
  impl_->run(filled(*impl_, options, here, gather_of(input, output, root, counts)));
}
Work Session::start_gather(ConstBuffer input, Buffer output, Root root, Counts counts,
                           const CallOptions& options, Here here) {
  return impl_->start(filled(*impl_, options, here, gather_of(input, output, root, counts)));
}

void Session::scatter(ConstBuffer input, Buffer output, Root root, Counts counts,
                      const CallOptions& options, Here here) {
  impl_->run(filled(*impl_, options, here, scatter_of(input, output, root, counts)));
}
Work Session::start_scatter(ConstBuffer input, Buffer output, Root root, Counts counts,
                            const CallOptions& options, Here here) {
  return impl_->start(filled(*impl_, options, here, scatter_of(input, output, root, counts)));
}

void Session::all_to_all(ConstBuffer input, Buffer output, const CallOptions& options, Here here) {
  impl_->run(filled(*impl_, options, here, all_to_all_of(input, output)));
}
Work Session::start_all_to_all(ConstBuffer input, Buffer output, const CallOptions& options,
                               Here here) {
  return impl_->start(filled(*impl_, options, here, all_to_all_of(input, output)));
}

void Session::barrier(const CallOptions& options, Here here) {
  impl_->run(filled(*impl_, options, here, barrier_of()));
}
Work Session::start_barrier(const CallOptions& options, Here here) {
  return impl_->start(filled(*impl_, options, here, barrier_of()));
}

void Session::send(ConstBuffer input, To to, const CallOptions& options, Here here) {
  Impl& pair = messages(*impl_, rank(), to.rank, "to");
  pair.run(filled(pair, options, here, send_of(input)));
}
Work Session::start_send(ConstBuffer input, To to, const CallOptions& options, Here here) {
  Impl& pair = messages(*impl_, rank(), to.rank, "to");
  return pair.start(filled(pair, options, here, send_of(input)));
}
void Session::receive(Buffer output, From from, const CallOptions& options, Here here) {
  Impl& pair = messages(*impl_, from.rank, rank(), "from");
  pair.run(filled(pair, options, here, receive_of(output)));
}
Work Session::start_receive(Buffer output, From from, const CallOptions& options, Here here) {
  Impl& pair = messages(*impl_, from.rank, rank(), "from");
  return pair.start(filled(pair, options, here, receive_of(output)));
}

Memory Session::allocate(std::size_t bytes) {
  impl_->check_usable();
  return impl_->naming_shortages(
      [&] { return Memory(impl_->generation().allocate(bytes), bytes); });
}

Batch Session::batch() {
  return impl_->naming_shortages([&] { return Batch(impl_); });
}

Session Session::split(Split how, const CallOptions& options, Here here) {
  if (how.color < 0)
    throw InvalidUsage(fmt::format("split: color is {}; it must be 0 or more", how.color));
  return impl_->naming_shortages([&] {
    const auto ranks = static_cast<std::size_t>(size());
    const std::int64_t mine[2] = {how.color, how.key};
    std::vector<std::int64_t> all(2 * ranks);
    std::vector<std::int64_t> colors(ranks);
    std::vector<std::int64_t> keys(ranks);
    CallOptions named = options;
    if (named.name.empty()) named.name = "split";
    all_gather(std::span(mine), std::span(all), {}, named, here);
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      colors[rank] = all[2 * rank];
      keys[rank] = all[2 * rank + 1];
    }
    return Session(impl_->making_group([&] { return impl_->subgroup(colors, keys); }));
  });
}

namespace {

/// Ends the generation: `rank` is to blame and `what` it did.
void end_generation(transport::Generation& generation, ErrorKind kind, Code code, int rank,
                    const char* what, const std::string& reason) noexcept {
  try {
    generation.fail(
        {kind, code, fmt::format("rank {} {}: {}", rank, what, one_line(reason)), {rank}});
  } catch (...) {
    generation.fail(transport::own_failure(transport::out_of_memory(), rank));
  }
}

}  // namespace

void Session::abort(const std::string& reason) noexcept {
  if (!impl_ || impl_->is_parents()) return;  // somebody else's
  end_generation(impl_->generation(), ErrorKind::cancelled, Code::cancelled,
                 impl_->spec().members[static_cast<std::size_t>(rank())], "aborted the group",
                 reason);
}

void Session::abandon(const std::string& reason) noexcept {
  if (!impl_ || impl_->is_parents()) return;
  end_generation(impl_->generation(), ErrorKind::peer_lost, Code::unavailable,
                 impl_->spec().members[static_cast<std::size_t>(rank())], "cannot go on", reason);
}

void Session::check() const {
  impl_->check_usable();
  if (impl_->generation().failed()) raise(impl_->generation().failure());
}

std::string Session::history() const {
  return impl_->naming_shortages([&] { return impl_->executor().recorder().text(); });
}

}  // namespace lockstep::coll
