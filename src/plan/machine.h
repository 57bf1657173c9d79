// Machine: runs the plans of all ranks against each other, symbolically, several operations in a
// row. check.h says what is proven; this is how.
//
// A rank runs until it must wait; ranks take turns. Values are expressions (symbols.h). Every
// instruction is an event of its rank; a message orders its send before its receive, publish is
// ordered before the await that sees it, and two accesses to one cell of which one writes must be
// ordered. A message reads its cells at any time up to its receive; after a drain they are free,
// but a drain tells nothing else of the peer (a transport may have taken a copy). Because waits are
// the only choice points and each has one possible partner, one interleaving stands for all.
#pragma once

#include <deque>
#include <string>
#include <vector>

#include "plan/check.h"
#include "plan/memory_model.h"
#include "plan/symbols.h"

namespace lockstep::plan {

class Machine {
 public:
  /// The plans are well-formed (form.h).
  Machine(const Request& request, const Layout& layout, const std::vector<Plan>& plans,
          const CheckOptions& options);

  Verdict run();

 private:
  struct Message {
    std::size_t cell = 0;
    std::uint64_t count = 0;
    int operation = 0;
    std::size_t instruction = 0;
    bool partial = false;
    VectorClock sent;
  };
  struct Published {
    std::uint32_t stage = 0;
    VectorClock clock;
  };
  struct Processor {
    int operation = 0;
    bool started = false;
    std::size_t next = 0;  // instruction
    int unreceived = 0;    // messages sent and not yet received
    VectorClock clock;
    std::vector<std::vector<Published>> published;  // by operation
    std::vector<std::uint32_t> starts;              // own clock, by operation
  };
  struct Buffers {
    std::vector<std::size_t> inputs;  // first cells
    std::size_t output = 0;
    std::size_t scratch = 0;
    std::size_t partial = 0;
    std::vector<std::size_t> slots;
  };
  /// Cells a message was read from, and the receive that read them.
  struct Received {
    std::size_t cell = 0;
    std::uint64_t count = 0;
    Epoch by;
  };
  /// Messages from one rank to another.
  struct Channel {
    std::deque<Message> queue;
    std::vector<Received> undrained;
  };

  enum class Progress : std::uint8_t { none, some };

  void lay_out_memory();
  Progress advance(int rank);
  /// False if the rank must wait or a problem was found.
  bool step(int rank);
  void start(int rank);
  bool end(int rank);

  void send(int rank, const Instruction& code);
  bool receive(int rank, const Instruction& code);
  bool drain(int rank, int peer);
  bool await(int rank, const Instruction& code);
  void reduce(int rank, const Instruction& code);
  void copy(int rank, const Instruction& code);

  void read(int rank, std::size_t cell);
  void write(int rank, std::size_t cell, Value value);
  void check_stored(const Instruction& code, const Place& target, Symbol symbol);
  void check_result(int rank);
  void check_sum(int rank, std::uint64_t element, const Value& found, std::uint64_t expected);
  void check_moved(int rank, std::uint64_t element, const Value& found);
  /// Nobody leaves a barrier before all have entered, nor a send before the receiver has.
  void check_meeting(int rank);

  [[nodiscard]] bool failed() const noexcept { return !problem_.empty(); }
  void fail(const std::string& what);
  void fail_deadlock();
  [[nodiscard]] std::string waiting_for(int rank) const;
  [[nodiscard]] std::size_t cell_of(int rank, const Place& place) const;
  [[nodiscard]] Epoch now(int rank) const;
  [[nodiscard]] std::uint32_t element_id(int operation, std::uint64_t element) const;
  [[nodiscard]] Channel& channel(int from, int to);

  const Request& request_;
  const Layout& layout_;
  const std::vector<Plan>& plans_;
  const CheckOptions& options_;
  int n_;
  bool wide_;
  Symbols symbols_;
  Symbol tree_;  // the finished sum as the fixed tree
  MemoryModel memory_;
  std::vector<Buffers> buffers_;
  std::vector<Processor> ranks_;
  std::vector<Channel> channels_;
  std::vector<Symbol> agreed_;  // all_reduce: the sum of each element, as first seen
  std::uint64_t span_ = 1;      // elements an operation distinguishes
  bool fixed_ = true;
  int at_rank_ = -1;  // for messages
  std::string problem_;
};

}  // namespace lockstep::plan
