// ReplicaContext: what a step function can ask and do as one of several replicas.
//
//   strategy.run([](ReplicaContext& replica, const Tensor& x) {
//     Tensor total = replica.all_reduce(ReduceOp::sum, x.sum());      // equal on every replica
//     auto mean = replica.merge_call([](Strategy& s, const PerReplica<Tensor>& each) {
//       return s.reduce(ReduceOp::mean, each);                        // cross-replica context
//     }, x);
//     return total;
//   }, batch);
//
// Belongs to the step function it was given to and to that function's thread: using it from
// another thread, or after the step, is InvalidUsage.
#pragma once

#include <cstdint>
#include <utility>

#include "lockstep/detail/runtime.h"
#include "lockstep/reduce_op.h"

namespace lockstep {

namespace detail {
struct ReplicaState;
std::vector<Tensor> all_reduce_tensors(ReplicaContext& replica, ReduceOp op,
                                       const std::vector<Tensor>& tensors, Here here);
}  // namespace detail

class ReplicaContext {
 public:
  ReplicaContext(const ReplicaContext&) = delete;
  ReplicaContext& operator=(const ReplicaContext&) = delete;

  /// Among the replicas of all workers, and among those of this process.
  [[nodiscard]] int replica_id_in_sync_group() const;
  [[nodiscard]] int local_replica_id() const noexcept;
  [[nodiscard]] int num_replicas_in_sync() const noexcept;
  [[nodiscard]] Strategy& strategy() const noexcept;
  [[nodiscard]] const Device& device() const noexcept;
  /// The one device of this replica.
  [[nodiscard]] DeviceList devices() const { return {device()}; }
  /// Rows of the whole batch over all replicas, as run() was told; InvalidUsage if it was not.
  [[nodiscard]] std::int64_t global_batch_size() const;

  /// Waits until every replica is here, then calls fn once, in cross-replica context, with the
  /// arguments of all: a T as PerReplica<T>, an Agreed<T> as Mirrored<T>. A Mirrored result comes
  /// back agreed, a PerReplica one as this replica's own, anything else as one agreed value, of
  /// which every replica has its own tensors: they are copied for all but one replica.
  /// Every replica must make the same merge calls in the same order.
  template <class F>
  auto merge_call(F&& fn, Here here = Here::now()) {
    return merge_at(here, fn);
  }
  template <class F, class A>
  auto merge_call(F&& fn, A&& a, Here here = Here::now()) {
    return merge_at(here, fn, std::forward<A>(a));
  }
  template <class F, class A, class B>
  auto merge_call(F&& fn, A&& a, B&& b, Here here = Here::now()) {
    return merge_at(here, fn, std::forward<A>(a), std::forward<B>(b));
  }
  template <class F, class A, class B, class C>
  auto merge_call(F&& fn, A&& a, B&& b, C&& c, Here here = Here::now()) {
    return merge_at(here, fn, std::forward<A>(a), std::forward<B>(b), std::forward<C>(c));
  }
  template <class F, class A, class B, class C, class D>
  auto merge_call(F&& fn, A&& a, B&& b, C&& c, D&& d, Here here = Here::now()) {
    return merge_at(here, fn, std::forward<A>(a), std::forward<B>(b), std::forward<C>(c),
                    std::forward<D>(d));
  }
  /// Any number of arguments, with the place of the call written out.
  template <class F, class... Args>
  auto merge_at(Here here, F&& fn, Args&&... args) {
    using Frame = detail::MergeFrame<std::remove_reference_t<F>, std::remove_cvref_t<Args>...>;
    Frame frame{std::addressof(fn), {std::forward<Args>(args)...}, {}};
    detail::merge(*this, {here, &Frame::run, &typeid(std::remove_cvref_t<F>), &frame});
    if constexpr (!Frame::kNothing) return std::move(*frame.result);
  }

  /// Sums (averages) every tensor of a nest over all replicas; the results are new tensors, also of
  /// one replica. Differentiable any number of times: the gradient is reduced the same way, so
  /// backward belongs inside a step function of the same replica, on its thread. Anywhere else it
  /// is InvalidUsage. A maximum or minimum has no gradient: Unsupported of what requires one.
  template <class N>
  Agreed<N> all_reduce(ReduceOp op, const N& nest, Here here = Here::now()) {
    return Agreed<N>(detail::with_tensors(
        nest, detail::all_reduce_tensors(*this, op, detail::tensors_of(nest), here)));
  }
  template <class N>
  Agreed<N> all_reduce(ReduceOp op, const Agreed<N>& nest, Here here = Here::now()) {
    return all_reduce(op, static_cast<const N&>(nest), here);
  }

  /// The tensors of all replicas, concatenated along an axis in replica order. Their other
  /// dimensions must match. Differentiable as all_reduce.
  Agreed<Tensor> all_gather(const Tensor& tensor, std::int64_t axis = 0, Here here = Here::now());

  template <class... Args>
  void reduce(const Args&...) {
    static_assert(!sizeof...(Args),
                  "lockstep: reduce is a verb of the strategy, for all replicas at once; inside a "
                  "step function use all_reduce(op, value), or merge_call");
  }

  explicit ReplicaContext(detail::ReplicaState& state) : state_(state) {}
  [[nodiscard]] detail::ReplicaState& state() const noexcept { return state_; }

 private:
  detail::ReplicaState& state_;
};

}  // namespace lockstep
