#include "plan/form.h"

#include <fmt/format.h>

#include <numeric>

namespace lockstep::plan {
namespace {

// Beyond this a symbolic run would not fit into memory; plans depend on counts only through slices.
constexpr std::uint64_t kMostElements = std::uint64_t{1} << 26;

std::uint64_t sum_of(const std::vector<std::uint64_t>& counts) {
  return std::accumulate(counts.begin(), counts.end(), std::uint64_t{0});
}

std::string bad_request(const Request& request, const Layout& layout) {
  const int n = layout.ranks();
  if (request.root < 0 || request.root >= n) return fmt::format("no rank {} (root)", request.root);
  if (request.to < 0 || request.to >= n) return fmt::format("no rank {} (to)", request.to);
  if (request.count > kMostElements) return "too many elements for a check";
  if (has_counts(request.kind) && request.counts.size() != static_cast<std::size_t>(n)) {
    return fmt::format("{} counts for {} ranks", request.counts.size(), n);
  }
  for (const std::uint64_t count : request.counts) {
    if (count > kMostElements) return "too many elements for a check";
  }
  return {};
}

/// One plan's instructions against the buffers they name.
class Form {
 public:
  Form(const Request& request, const Layout& layout, const std::vector<Plan>& plans,
       Aliasing aliasing, int rank)
      : request_(request),
        layout_(layout),
        plans_(plans),
        aliasing_(aliasing),
        rank_(rank),
        plan_(plans[static_cast<std::size_t>(rank)]) {}

  std::string find() {
    std::uint32_t stage = 0;
    for (std::size_t i = 0; i < plan_.code.size(); ++i) {
      const Instruction& code = plan_.code[i];
      std::string problem = bad_slices(code);
      if (problem.empty()) problem = bad_operands(code);
      if (problem.empty() && code.verb == Verb::publish) {
        if (code.stage <= stage) problem = fmt::format("stage {} after {}", code.stage, stage);
        if (code.stage >= kStages) {
          problem = fmt::format("stage {} of at most {}", code.stage, kStages - 1);
        }
        stage = code.stage;
      }
      if (!problem.empty()) {
        return fmt::format("rank {}, {}: {}", rank_, describe(plan_, i), problem);
      }
    }
    return {};
  }

 private:
  [[nodiscard]] std::string bad_slices(const Instruction& code) const {
    const auto within = [](std::uint32_t first, std::uint32_t count, std::size_t size) {
      return std::uint64_t{first} + count <= size;
    };
    if (!within(code.sources, code.source_count, plan_.places.size()) ||
        !within(code.targets, code.target_count, plan_.places.size())) {
      return "its places are beyond the plan's list";
    }
    if (code.verb == Verb::reduce && !within(code.merges, code.source_count, plan_.merges.size())) {
      return "its merges are beyond the plan's list";
    }
    return {};
  }

  [[nodiscard]] std::string bad_operands(const Instruction& code) const {
    const auto numbers = [&](std::uint32_t sources, std::uint32_t targets) {
      return code.source_count == sources && code.target_count == targets;
    };
    switch (code.verb) {
      case Verb::send:
        if (!numbers(1, 0)) return "a send has one source and no target";
        return bad_message(code, plan_.sources_of(code).front());
      case Verb::receive:
        if (!numbers(0, 1)) return "a receive has one target and no source";
        if (std::string problem = bad_target(plan_.targets_of(code).front()); !problem.empty()) {
          return problem;
        }
        return bad_message(code, plan_.targets_of(code).front());
      case Verb::drain:
      case Verb::await:
        if (!numbers(0, 0)) return "it has no places";
        if (code.verb == Verb::await && code.stage == 0) return "stages begin at 1";
        return bad_peer(code);
      case Verb::publish:
        return numbers(0, 0) ? "" : "it has no places";
      case Verb::copy:
        if (code.source_count != 1 || code.target_count == 0) {
          return "a copy has one source and some targets";
        }
        return bad_places(code);
      case Verb::reduce:
        if (code.source_count == 0 || code.target_count == 0) {
          return "a reduction has sources and targets";
        }
        if (!is_reduction(request_.kind)) return "this collective does not add";
        if (std::string problem = bad_program(plan_.merges_of(code)); !problem.empty()) {
          return problem;
        }
        return bad_places(code);
    }
    return "unknown verb";
  }

  [[nodiscard]] std::string bad_peer(const Instruction& code) const {
    if (code.peer < 0 || code.peer >= layout_.ranks()) return "there is no such rank";
    if (code.peer == rank_) return "the peer is the rank itself";
    return {};
  }

  [[nodiscard]] std::string bad_message(const Instruction& code, const Place& place) const {
    if (std::string problem = bad_peer(code); !problem.empty()) return problem;
    if (code.count == 0) return "an empty message";
    if (place.rank != rank_) return "messages start and end in the rank's own memory";
    return bad_place(place, code.count);
  }

  [[nodiscard]] static std::string bad_program(std::span<const std::uint8_t> program) {
    std::size_t depth = 0;
    for (const std::uint8_t merges : program) {
      ++depth;
      if (merges >= depth) return "its merges combine more values than there are";
      depth -= merges;
    }
    return depth == 1 ? "" : "its merges leave several values";
  }

  [[nodiscard]] static std::string bad_target(const Place& place) {
    return place.buffer == Buffer::input ? "an input is never written" : "";
  }

  [[nodiscard]] std::string bad_place(const Place& place, std::uint64_t count) const {
    if (place.rank < 0 || place.rank >= layout_.ranks()) return "a place of no rank";
    const Plan& owner = plans_[static_cast<std::size_t>(place.rank)];
    const bool foreign = place.rank != rank_;
    std::uint64_t size = 0;
    switch (place.buffer) {
      case Buffer::input:
        if (place.index < 0 || place.index >= input_number(request_, layout_, place.rank)) {
          return "no such input";
        }
        size = input_count(request_, layout_, place.rank);
        break;
      case Buffer::output:
        size = output_count(request_, layout_, place.rank);
        break;
      case Buffer::scratch:
      case Buffer::partial:
        if (foreign) return "scratch and partial of another rank cannot be reached";
        size = place.buffer == Buffer::scratch ? owner.scratch_count : owner.partial_count;
        break;
      case Buffer::slot:
        size = owner.slot_count;
        break;
      default:
        return "no such buffer";
    }
    if (place.buffer != Buffer::input && place.index != 0) return "only inputs have an index";
    if (place.offset > size || count > size - place.offset) {
      return fmt::format("elements [{}, {}) of a buffer of {}", place.offset, place.offset + count,
                         size);
    }
    return {};
  }

  [[nodiscard]] bool same_memory(const Place& a, const Place& b) const {
    if (a.rank != b.rank) return false;
    if (a.buffer == b.buffer) return a.index == b.index;
    const auto caller = [](const Place& p) {
      return p.buffer == Buffer::output || (p.buffer == Buffer::input && p.index == 0);
    };
    return aliasing_ == Aliasing::in_place && caller(a) && caller(b);
  }

  [[nodiscard]] static bool overlap(const Place& a, const Place& b, std::uint64_t count) {
    return a.offset < b.offset + count && b.offset < a.offset + count;
  }

  [[nodiscard]] std::string bad_places(const Instruction& code) const {
    const auto sources = plan_.sources_of(code);
    const auto targets = plan_.targets_of(code);
    for (const Place& source : sources) {
      if (std::string problem = bad_place(source, code.count); !problem.empty()) return problem;
    }
    for (std::size_t i = 0; i < targets.size(); ++i) {
      if (std::string problem = bad_target(targets[i]); !problem.empty()) return problem;
      if (std::string problem = bad_place(targets[i], code.count); !problem.empty()) return problem;
      for (const Place& source : sources) {
        if (same_memory(source, targets[i]) && source.offset != targets[i].offset &&
            overlap(source, targets[i], code.count)) {
          return "a target overlaps a source at another offset";
        }
      }
      for (const Place& other : targets.first(i)) {
        if (same_memory(other, targets[i]) && overlap(other, targets[i], code.count)) {
          return "two targets overlap";
        }
      }
    }
    return {};
  }

  const Request& request_;
  const Layout& layout_;
  const std::vector<Plan>& plans_;
  Aliasing aliasing_;
  int rank_;
  const Plan& plan_;
};

const char* verb_text(Verb verb) {
  switch (verb) {
    case Verb::send:
      return "send";
    case Verb::receive:
      return "receive";
    case Verb::drain:
      return "drain";
    case Verb::publish:
      return "publish";
    case Verb::await:
      return "await";
    case Verb::reduce:
      return "reduce";
    case Verb::copy:
      return "copy";
  }
  return "unknown";
}

}  // namespace

bool has_counts(Kind kind) noexcept {
  return kind == Kind::all_gather || kind == Kind::reduce_scatter || kind == Kind::gather ||
         kind == Kind::scatter;
}

std::uint64_t element_count(const Request& request) {
  return has_counts(request.kind) ? sum_of(request.counts) : request.count;
}

bool is_reduction(Kind kind) noexcept {
  return kind == Kind::all_reduce || kind == Kind::reduce || kind == Kind::reduce_scatter;
}

bool allows_in_place(Kind kind) noexcept {
  return kind == Kind::all_reduce || kind == Kind::reduce || kind == Kind::broadcast;
}

std::uint64_t input_count(const Request& request, const Layout& layout, int rank) {
  switch (request.kind) {
    case Kind::all_reduce:
    case Kind::reduce:
      return request.count;
    case Kind::broadcast:
    case Kind::send_receive:
      return rank == request.root ? request.count : 0;
    case Kind::all_gather:
    case Kind::gather:
      return request.counts[static_cast<std::size_t>(rank)];
    case Kind::reduce_scatter:
      return sum_of(request.counts);
    case Kind::scatter:
      return rank == request.root ? sum_of(request.counts) : 0;
    case Kind::all_to_all:
      return request.count * static_cast<std::uint64_t>(layout.ranks());
    case Kind::barrier:
      return 0;
  }
  return 0;
}

int input_number(const Request& request, const Layout& layout, int rank) {
  return is_reduction(request.kind) ? layout.replicas(rank) : 1;
}

std::uint64_t output_count(const Request& request, const Layout& layout, int rank) {
  switch (request.kind) {
    case Kind::all_reduce:
    case Kind::broadcast:
      return request.count;
    case Kind::reduce:
      return rank == request.root ? request.count : 0;
    case Kind::all_gather:
      return sum_of(request.counts);
    case Kind::reduce_scatter:
    case Kind::scatter:
      return request.counts[static_cast<std::size_t>(rank)];
    case Kind::gather:
      return rank == request.root ? sum_of(request.counts) : 0;
    case Kind::all_to_all:
      return request.count * static_cast<std::uint64_t>(layout.ranks());
    case Kind::barrier:
      return 0;
    case Kind::send_receive:
      return rank == request.to ? request.count : 0;
  }
  return 0;
}

std::string describe(const Plan& plan, std::size_t index) {
  const Instruction& code = plan.code[index];
  const char* verb = verb_text(code.verb);
  switch (code.verb) {
    case Verb::send:
      return fmt::format("instruction {} (send {} elements to rank {})", index, code.count,
                         code.peer);
    case Verb::receive:
      return fmt::format("instruction {} (receive {} elements from rank {})", index, code.count,
                         code.peer);
    case Verb::drain:
      return fmt::format("instruction {} (drain rank {})", index, code.peer);
    case Verb::publish:
      return fmt::format("instruction {} (publish stage {})", index, code.stage);
    case Verb::await:
      return fmt::format("instruction {} (await stage {} of rank {})", index, code.stage,
                         code.peer);
    default:
      return fmt::format("instruction {} ({} {} elements)", index, verb, code.count);
  }
}

std::string find_malformed(const Request& request, const Layout& layout,
                           const std::vector<Plan>& plans, Aliasing aliasing) {
  if (plans.size() != static_cast<std::size_t>(layout.ranks())) {
    return fmt::format("{} plans for {} ranks", plans.size(), layout.ranks());
  }
  if (std::string problem = bad_request(request, layout); !problem.empty()) return problem;
  if (aliasing == Aliasing::in_place && !allows_in_place(request.kind)) {
    return fmt::format("{} has no in-place form", to_string(request.kind));
  }
  for (int rank = 0; rank < layout.ranks(); ++rank) {
    // Slots are used in turn: a rank that skips one would be at another slot than its peers.
    if ((plans[static_cast<std::size_t>(rank)].slot_count == 0) !=
        (plans.front().slot_count == 0)) {
      return fmt::format("rank {} and rank 0 differ in whether slots are used", rank);
    }
    // Where a slot lies depends on how long the slots before it were.
    const Plan& plan = plans[static_cast<std::size_t>(rank)];
    if (plan.slot_most != plans.front().slot_most || plan.slot_count > plan.slot_most) {
      return fmt::format("rank {} takes {} elements of slots of {} (rank 0: of {})", rank,
                         plan.slot_count, plan.slot_most, plans.front().slot_most);
    }
  }
  for (int rank = 0; rank < layout.ranks(); ++rank) {
    const Plan& plan = plans[static_cast<std::size_t>(rank)];
    if (plan.scratch_count > kMostElements || plan.partial_count > kMostElements ||
        plan.slot_count > kMostElements) {
      return fmt::format("rank {}: too much memory for a check", rank);
    }
    std::string problem = Form(request, layout, plans, aliasing, rank).find();
    if (!problem.empty()) return problem;
  }
  return {};
}

std::string find_shared_use(const std::vector<Plan>& plans) {
  for (std::size_t rank = 0; rank < plans.size(); ++rank) {
    const Plan& plan = plans[rank];
    for (std::size_t i = 0; i < plan.code.size(); ++i) {
      const Instruction& code = plan.code[i];
      bool shared = code.verb == Verb::publish || code.verb == Verb::await;
      for (const Place& place : plan.sources_of(code)) {
        shared = shared || place.rank != static_cast<int>(rank) || place.buffer == Buffer::slot;
      }
      for (const Place& place : plan.targets_of(code)) {
        shared = shared || place.rank != static_cast<int>(rank) || place.buffer == Buffer::slot;
      }
      if (shared) {
        return fmt::format("rank {}, {}: shared memory in an algorithm of messages", rank,
                           describe(plan, i));
      }
    }
  }
  return {};
}

}  // namespace lockstep::plan
