// Bruck's algorithms: in log2(n) rounds each rank talks to the ranks a power of two away, so a rank
// has at most 2 log2(n) peers however many ranks there are.
#include <algorithm>
#include <bit>

#include "plan/builder.h"
#include "plan/makers.h"

namespace lockstep::plan {
namespace {

std::size_t at(int rank) { return static_cast<std::size_t>(rank); }

/// Cuts the positions [first, first + length) of a ring of n where they pass the last one. Sender
/// and receiver of a message cut alike.
template <class Body>
void each_unbroken(int first, int length, int n, Body body) {
  first %= n;
  const int before_end = std::min(length, n - first);
  if (before_end > 0) body(first, before_end);
  if (length > before_end) body(0, length - before_end);
}

/// All-to-all. Block i is the one for the rank i further; in the round of bit k every block whose
/// number has that bit moves 2^k ranks on. The highest bit comes first: blocks that lie side by side
/// have then moved equally often and go as one message. A moved block lies in one of two banks, in
/// turn, because its last message may still be on its way.
class BruckAllToAll {
 public:
  explicit BruckAllToAll(Builder& b) : b_(b), n_(b.ranks()), count_(b.request().count) {
    for (Place& bank : banks_) bank = b_.take_scratch(static_cast<std::uint64_t>(n_) * count_);
  }

  void run() {
    int drained = 0;  // distances
    for (int distance = static_cast<int>(std::bit_ceil(at(n_))) / 2; distance >= 1; distance /= 2) {
      const int to = b_.neighbour(distance);
      const int from = b_.neighbour(-distance);
      each_run(distance, [&](int first, int length) { send(to, first, length); });
      each_run(distance, [&](int first, int /*length*/) {
        // The bank that a third move goes to was read by the message of the second.
        const int before = first & (first - 1);
        const int sent = before & -before;
        if ((before & (before - 1)) == 0 || (drained & sent) != 0) return;
        b_.drain(b_.neighbour(sent));
        drained |= sent;
      });
      each_run(distance, [&](int first, int length) { receive(from, first, length); });
    }
    b_.copy(b_.input(offset(b_.rank())), b_.output(offset(b_.rank())), count_);
    for (int i = 1; i < n_; ++i) {
      b_.copy(moved(i, i), b_.output(offset(b_.neighbour(-i))), count_);
    }
  }

 private:
  [[nodiscard]] std::uint64_t offset(int block) const {
    return static_cast<std::uint64_t>(block) * count_;
  }
  /// Where block i lies after the moves of these bits of its number.
  [[nodiscard]] Place moved(int i, int bits) const {
    return shifted(banks_[std::popcount(static_cast<unsigned>(bits)) % 2], offset(i));
  }
  /// The blocks with that bit, side by side.
  template <class Body>
  void each_run(int bit, Body body) const {
    for (int first = bit; first < n_; first += 2 * bit) body(first, std::min(bit, n_ - first));
  }
  /// Blocks that have not moved lie in the sender's input, around its end.
  template <class Body>
  void each_message(int sender, int first, int length, Body body) const {
    if (!has_moved(first)) return each_unbroken(sender + first, length, n_, body);
    body(first, length);
  }
  [[nodiscard]] static bool has_moved(int first) {
    return !std::has_single_bit(static_cast<unsigned>(first));
  }

  void send(int to, int first, int length) {
    const int before = first & (first - 1);  // the first of a run has no lower bits
    each_message(b_.rank(), first, length, [&](int begin, int blocks) {
      b_.send(to, has_moved(first) ? moved(begin, before) : b_.input(offset(begin)),
              offset(blocks));
    });
  }

  void receive(int from, int first, int length) {
    int i = first;
    each_message(from, first, length, [&](int /*begin*/, int blocks) {
      b_.receive(from, moved(i, first), offset(blocks));
      i += blocks;
    });
  }

  Builder& b_;
  int n_;
  std::uint64_t count_;
  Place banks_[2];
};

}  // namespace

/// In the round of distance d a rank has its own part and those of the d - 1 ranks after it. It
/// sends them to the rank d before it and receives those of the d ranks after.
Plan all_gather_bruck(const Request& request, const Layout& layout, int rank) {
  Builder b(request, layout, rank);
  const int n = b.ranks();
  const std::vector<Slice> slices = split_by(request.counts);
  const auto parts = [&](int first, int length) {
    return Slice{slices[at(first)].begin, slices[at(first + length - 1)].end};
  };
  b.copy(b.input(0), b.output(slices[at(rank)].begin), slices[at(rank)].count());
  for (int distance = 1; distance < n; distance *= 2) {
    const int length = std::min(distance, n - distance);
    each_unbroken(rank, length, n, [&](int first, int many) {
      const Slice out = parts(first, many);
      b.send(b.neighbour(-distance), b.output(out.begin), out.count());
    });
    each_unbroken(rank + distance, length, n, [&](int first, int many) {
      const Slice in = parts(first, many);
      b.receive(b.neighbour(distance), b.output(in.begin), in.count());
    });
  }
  return b.done();
}

Plan all_to_all_bruck(const Request& request, const Layout& layout, int rank) {
  Builder b(request, layout, rank);
  BruckAllToAll(b).run();
  return b.done();
}

}  // namespace lockstep::plan
