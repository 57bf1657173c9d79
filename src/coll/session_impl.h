// What is behind a Session: the executor of one group, its pump, and what further groups are made
// of.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "base/fork.h"
#include "base/mutex.h"
#include "coll/executor.h"
#include "coll/pump.h"
#include "lockstep/coll/session.h"
#include "plan/algorithm.h"
#include "transport/generation.h"
#include "transport/own_failure.h"

namespace lockstep::coll {

/// A rank's part in a generation, shared by its sessions: it leaves when the last of them is
/// closed.
struct Membership {
  std::shared_ptr<transport::Generation> generation;
  int rank = 0;
  std::shared_ptr<Records> records;

  Membership(std::shared_ptr<transport::Generation> its_generation, int its_rank,
             std::shared_ptr<Records> its_records)
      : generation(std::move(its_generation)), rank(its_rank), records(std::move(its_records)) {}
  Membership(const Membership&) = delete;
  Membership& operator=(const Membership&) = delete;
  ~Membership() { generation->leave(rank); }
};

/// InvalidUsage for options that cannot be; a warning for an engine that is not built.
void check_session_options(const SessionOptions& options);

class Session::Impl {
 public:
  /// `membership` is that of the session this one is split from; null: a new one.
  Impl(std::shared_ptr<transport::Generation> generation, MakeCarrier make_carrier, GroupSpec spec,
       int rank, const SessionOptions& options, std::shared_ptr<Membership> membership = nullptr,
       Executor::Deserted deserted = {});
  ~Impl();

  [[nodiscard]] int rank() const noexcept { return rank_; }
  [[nodiscard]] int size() const noexcept { return static_cast<int>(spec_.members.size()); }
  [[nodiscard]] const GroupSpec& spec() const noexcept { return spec_; }
  [[nodiscard]] const plan::Layout& layout() const noexcept { return layout_; }
  [[nodiscard]] transport::Generation& generation() noexcept { return *generation_; }
  Executor& executor() noexcept { return executor_; }

  /// InvalidUsage in a child that was forked since, and of a session that is closed.
  void check_usable() const;
  [[nodiscard]] bool is_usable() const noexcept {
    return !is_parents() && !closed_.load(std::memory_order_relaxed);
  }
  /// This is such a child: nothing of the session may be touched, not even to close it.
  [[nodiscard]] bool is_parents() const noexcept { return made_in_ != forks(); }

  /// Runs `function`; what it throws for want of memory names this rank.
  template <class Function>
  decltype(auto) naming_shortages(Function&& function) const {
    return transport::naming_shortages(spec_.members[static_cast<std::size_t>(rank_)],
                                       std::forward<Function>(function));
  }

  /// The same for making a group, which other ranks make, too, and in which they would wait for this
  /// one: without the memory for it the generation ends.
  template <class Make>
  decltype(auto) making_group(Make&& make) {
    try {
      return naming_shortages(std::forward<Make>(make));
    } catch (const SystemError& error) {
      if (error.code() == Code::resource_exhausted) generation_->fail(transport::current_failure());
      throw;
    }
  }

  /// A correct all-reduce of little data without options: Executor::run_small. No in a child.
  [[nodiscard]] bool is_small(Op op, const Inputs& inputs, const Buffer& output,
                              const CallOptions& options) const noexcept;

  /// Fills a call in place and carries it out on the calling thread; throws what went wrong.
  template <class Fill>
  void run(Fill&& fill) {
    check_usable();
    naming_shortages([&] {
      Call call;
      fill(call);
      call.seal();
      const Deadline deadline = call.deadline();
      raise_if_error(executor_.run(call, executor_.issue(), deadline));
    });
  }
  /// The same by the pump.
  template <class Fill>
  Work start(Fill&& fill) {
    return naming_shortages([&] {
      auto work = std::make_shared<Work::Shared>();
      fill(work->calls.emplace_back().call);
      return submit(std::move(work));
    });
  }
  /// Seals and issues all calls of the work, one after another; the pump carries them out.
  Work submit(std::shared_ptr<Work::Shared> work);
  /// The same on the calling thread; throws what went wrong.
  void carry_out(Work::Shared& work);

  /// The two-rank group of messages from one rank to another, made on first use.
  Impl& messages(int from, int to);
  std::shared_ptr<Impl> subgroup(const std::vector<std::int64_t>& colors,
                                 const std::vector<std::int64_t>& keys);

  /// The owner is gone: fails the generation if operations are unfinished, then leaves.
  void close() noexcept;

 private:
  static void seal(Work::Shared& work);
  void issue(Work::Shared& work) REQUIRES(mutex_);

  std::shared_ptr<transport::Generation> generation_;
  MakeCarrier make_carrier_;
  GroupSpec spec_;
  plan::Layout layout_;
  int rank_;
  std::uint32_t made_in_;  // fork_era()
  bool single_;            // this rank has one replica
  SessionOptions options_;
  std::shared_ptr<Records> records_;
  Executor executor_;

  Mutex mutex_;
  std::atomic<bool> closed_ = false;  // set with the mutex held
  std::shared_ptr<Membership> membership_ GUARDED_BY(mutex_);
  std::unique_ptr<Pump> pump_ GUARDED_BY(mutex_);
  using Pairs = std::map<std::pair<int, int>, std::unique_ptr<Impl>>;
  Pairs messages_ GUARDED_BY(mutex_);
  Pairs ended_messages_;      // by close(); another thread may still be in one
  bool retired_ = false;      // by close()
  std::uint64_t splits_ = 0;  // changed by split() only, which is a collective
};

}  // namespace lockstep::coll
