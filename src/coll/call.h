// Call: one collective as the caller asked for it, checked and with the types erased. Everything
// the engine needs lies in it, so that it can wait in a queue; it does not move, since buffers
// point into it.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/deadline.h"
#include "base/inline_vector.h"
#include "lockstep/coll/buffer.h"
#include "lockstep/coll/options.h"
#include "lockstep/here.h"
#include "lockstep/op.h"
#include "plan/algorithm.h"
#include "transport/link.h"

namespace lockstep::coll {

struct Call {
  plan::Kind kind = plan::Kind::barrier;
  Op op = Op::sum;
  bool reduces = false;  // op counts
  DType dtype = DType::uint8;
  std::optional<DType> wire;  // what travels, if not dtype: the executor's business
  std::uint64_t count = 0;
  std::vector<std::uint64_t> counts;  // per rank; empty: equal
  int root = -1;
  int to = -1;
  plan::Order order = plan::Order::fixed_tree;
  std::uint64_t shape_hash = 0;
  wire::Name name;
  wire::Description description;
  std::chrono::nanoseconds timeout{0};
  bool background = false;
  Here here;

  /// Of the whole call; ask on entry.
  [[nodiscard]] Deadline deadline() const noexcept {
    return timeout.count() > 0 ? Deadline::after(timeout) : Deadline::never();
  }

  /// Appends an input or sets the output: one buffer, or the parts of a batch, as one.
  void add_input(std::span<const ConstBuffer> parts) { inputs_.push_back(add(parts)); }
  void set_output(std::span<const ConstBuffer> parts) { output_ = add(parts); }

  /// The buffers as the engine sees them; call once, when all are added.
  void seal();
  [[nodiscard]] const transport::Exposure& exposure() const noexcept { return exposure_; }

 private:
  struct Range {
    std::size_t first = 0;
    std::size_t size = 0;
  };
  Range add(std::span<const ConstBuffer> parts);

  InlineVector<transport::Pieces::Piece, 4> pieces_;
  InlineVector<Range, 2> inputs_;
  Range output_;
  InlineVector<transport::Pieces, 2> sealed_inputs_;
  transport::Exposure exposure_;
};

}  // namespace lockstep::coll
