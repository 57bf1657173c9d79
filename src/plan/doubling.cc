// Recursive doubling: at every node of the tree both sides give each other their sums, and all
// ranks below it add the same two values. Few rounds, much data: for small counts.
#include <fmt/format.h>

#include <algorithm>

#include "plan/builder.h"
#include "plan/makers.h"

namespace lockstep::plan {
namespace {

class Doubling {
 public:
  explicit Doubling(Builder& b) : b_(b), count_(b.request().count) {}

  void run() {
    std::vector<Piece> leaves = b_.leaf_pieces(b_.rank(), 0);
    if (b_.ranks() == 1) {
      b_.reduce(leaves, b_.output(0), count_, Finish::yes);
      return;
    }
    const Node own = b_.leaves_of(b_.rank());
    value_ = {own, leaves.front().place};
    if (own.size() > 1) store(leaves, Finish::no);
    climb(b_.root_node());
  }

 private:
  /// Brings this rank's value from its own leaves up to `node`.
  void climb(Node node) {
    if (node == b_.leaves_of(b_.rank())) return;
    const Node low = left(node);
    const Node high = right(node);
    const bool on_left = b_.layout().first(b_.rank()) < high.lo;
    climb(on_left ? low : high);

    const Node theirs = on_left ? high : low;
    const auto [first, end] = ranks_of(on_left ? low : high);
    const auto [peer_first, peer_end] = ranks_of(theirs);
    const int peers = peer_end - peer_first;
    const int ours = end - first;
    const int index = b_.rank() - first;
    // Rank i of one side hears from rank (i mod the other side's size) of the other.
    for (int i = index; i < peers; i += ours) {
      b_.send(peer_first + i, value_.place, count_);
      unread_.push_back({peer_first + i, value_.place});
    }
    const Piece heard{theirs, landing(theirs)};
    b_.receive(peer_first + index % peers, heard.place, count_);
    const Piece both[] = {on_left ? value_ : heard, on_left ? heard : value_};
    value_.node = node;
    store(both, node == b_.root_node() ? Finish::yes : Finish::no);
  }

  /// Reduces the pieces into the bank that is not being sent, or into the output. In place the
  /// output is the input, which earlier messages may still read.
  void store(std::span<const Piece> pieces, Finish finish) {
    Place target = b_.output(0);
    if (finish == Finish::no) {
      Place& bank = banks_[next_bank_];
      if (!taken_[next_bank_]) bank = b_.take_partial(count_);
      taken_[next_bank_] = true;
      next_bank_ = 1 - next_bank_;
      target = bank;
    }
    const auto overwritten = [&](const Unread& sent) {
      return finish == Finish::yes
                 ? sent.place.buffer == Buffer::input
                 : sent.place.buffer == Buffer::partial && sent.place.offset == target.offset;
    };
    for (const Unread& sent : unread_) {
      if (overwritten(sent)) b_.drain(sent.peer);
    }
    unread_.erase(std::remove_if(unread_.begin(), unread_.end(), overwritten), unread_.end());
    b_.reduce(pieces, target, count_, finish);
    value_.place = target;
  }

  Place landing(Node node) {
    Place& place = node.size() == 1 ? value_landing_ : partial_landing_;
    bool& taken = node.size() == 1 ? value_taken_ : partial_taken_;
    if (!taken) place = b_.take_for(node, count_);
    taken = true;
    return place;
  }

  [[nodiscard]] std::pair<int, int> ranks_of(Node node) const {
    return {b_.layout().rank_of(node.lo), b_.layout().rank_of(node.hi - 1) + 1};
  }

  struct Unread {
    int peer;
    Place place;
  };

  Builder& b_;
  std::uint64_t count_;
  Piece value_;
  std::vector<Unread> unread_;
  Place banks_[2];
  bool taken_[2] = {};
  int next_bank_ = 0;
  Place value_landing_, partial_landing_;
  bool value_taken_ = false, partial_taken_ = false;
};

}  // namespace

std::string refuses_unaligned(const Request& /*request*/, const Layout& layout) {
  for (int rank = 0; rank < layout.ranks(); ++rank) {
    const Node leaves{layout.first(rank), layout.first(rank + 1)};
    if (!is_subtree(leaves, layout.replicas())) {
      return fmt::format("replicas {} to {} of rank {} are not one subtree of the fixed tree",
                         leaves.lo, leaves.hi - 1, rank);
    }
  }
  return {};
}

Plan all_reduce_doubling(const Request& request, const Layout& layout, int rank) {
  Builder b(request, layout, rank);
  if (request.count > 0) Doubling(b).run();
  return b.done();
}

}  // namespace lockstep::plan
