#include "strategy/cross_device/packing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "strategy/cross_device/hierarchical_copy.h"

namespace lockstep::detail {

std::ostream& operator<<(std::ostream& out, const Piece& piece) {
  return out << piece.item << ":[" << piece.begin << "," << piece.end << ")";
}

namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<PackItem> floats(const std::vector<std::int64_t>& lengths) {
  std::vector<PackItem> items;
  for (const std::int64_t length : lengths) items.push_back({at::kFloat, length});
  return items;
}

std::vector<std::int64_t> elements(const std::vector<Pack>& packs) {
  std::vector<std::int64_t> counts;
  for (const Pack& pack : packs) {
    counts.push_back(0);
    for (const Piece& piece : pack) counts.back() += piece.end - piece.begin;
  }
  return counts;
}

TEST(Packing, TheLastPackTakesTheRemainder) {
  EXPECT_THAT(elements(split_evenly(floats({7, 3}), 4)), ElementsAre(2, 2, 2, 4));
  EXPECT_THAT(elements(split_evenly(floats({1, 2}), 8)), ElementsAre(0, 0, 0, 0, 0, 0, 0, 3));
  EXPECT_THAT(split_evenly(floats({7, 3}), 2),
              ElementsAre(Pack{{0, 0, 5}}, Pack{{0, 5, 7}, {1, 0, 3}}));
  EXPECT_THAT(elements(split_evenly(floats({5}), 1)), ElementsAre(5));
  EXPECT_THAT(split_evenly({}, 3), IsEmpty());
}

TEST(Packing, EachDtypeIsASeriesOfItsOwn) {
  const std::vector<PackItem> items = {{at::kFloat, 4}, {at::kDouble, 2}, {at::kFloat, 2}};
  EXPECT_THAT(split_evenly(items, 2), ElementsAre(Pack{{0, 0, 3}}, Pack{{0, 3, 4}, {2, 0, 2}},
                                                  Pack{{1, 0, 1}}, Pack{{1, 1, 2}}));
  EXPECT_THAT(fill(items, 0), ElementsAre(Pack{{0, 0, 4}, {2, 0, 2}}, Pack{{1, 0, 2}}));
}

// Every element of every item is in exactly one pack, in order.
TEST(Packing, NothingIsLostAndNothingTwice) {
  for (int seed = 0; seed < 200; ++seed) {
    std::vector<PackItem> items;
    std::mt19937 random(static_cast<unsigned>(seed));
    const at::ScalarType types[] = {at::kFloat, at::kLong, at::kHalf};
    for (int i = 0; i < 1 + seed % 20; ++i) {
      items.push_back({types[random() % 3], static_cast<std::int64_t>(random() % 40)});
    }
    for (const auto& packs :
         {split_evenly(items, 1 + seed % 9), group_small(items, 40, 1 + seed % 5), one_each(items),
          fill(items, seed % 3 * 50)}) {
      std::vector<std::int64_t> next(items.size(), 0);
      for (const Pack& pack : packs) {
        for (const Piece& piece : pack) {
          EXPECT_EQ(piece.begin, next[piece.item]);
          EXPECT_LE(piece.begin, piece.end);
          EXPECT_EQ(items[piece.item].dtype, items[pack.front().item].dtype);
          next[piece.item] = piece.end;
        }
      }
      for (std::size_t i = 0; i < items.size(); ++i) EXPECT_EQ(next[i], items[i].elements) << seed;
    }
  }
}

std::vector<std::vector<std::size_t>> members(const std::vector<Pack>& packs) {
  std::vector<std::vector<std::size_t>> all;
  for (const Pack& pack : packs) {
    all.emplace_back();
    for (const Piece& piece : pack) all.back().push_back(piece.item);
  }
  return all;
}
using Members = std::vector<std::vector<std::size_t>>;

TEST(Packing, NeighboursThatAreSmallFormGroups) {
  // Small are 0, 1, 2, 5, 7 and 8.
  const auto items = floats({1, 2, 3, 100, 100, 25, 100, 25, 1});
  EXPECT_EQ(members(group_small(items, 100, 10)), (Members{{0, 1, 2}, {7, 8}, {3}, {4}, {5}, {6}}));
  // At most two together; the third is alone then.
  EXPECT_EQ(members(group_small(items, 100, 2)),
            (Members{{0, 1}, {7, 8}, {2}, {3}, {4}, {5}, {6}}));
  EXPECT_EQ(members(group_small(items, 99, 10)),
            (Members{{0, 1, 2}, {3}, {4}, {5}, {6}, {7}, {8}}));
  EXPECT_EQ(members(group_small(floats({1, 1}), 100, 1)), (Members{{0}, {1}}));
  const std::vector<PackItem> mixed = {
      {at::kFloat, 1}, {at::kDouble, 1}, {at::kDouble, 2}, {at::kFloat, 1}};
  EXPECT_EQ(members(group_small(mixed, 100, 10)), (Members{{1, 2}, {0}, {3}}));
}

TEST(Packing, APackIsFullOnceItIsLargerThanAskedFor) {
  const auto items = floats({32, 8, 200, 1});  // 128, 32, 800 and 4 bytes
  EXPECT_EQ(members(fill(items, 200)), (Members{{0, 1, 2}, {3}}));
  EXPECT_EQ(members(fill(items, 128)), (Members{{0, 1}, {2}, {3}}));
  EXPECT_EQ(members(fill(items, 1)), (Members{{0}, {1}, {2}, {3}}));
  EXPECT_EQ(members(fill(items, 0)), (Members{{0, 1, 2, 3}}));
}

TEST(HierarchicalCopy, MainsAreInBothHalves) {
  EXPECT_EQ(mains_of(0, 8), (Mains{0, 4}));
  EXPECT_EQ(mains_of(3, 8), (Mains{3, 7}));
  EXPECT_EQ(mains_of(5, 8), (Mains{5, 1}));
  EXPECT_EQ(mains_of(9, 8), (Mains{1, 5}));
  EXPECT_EQ(mains_of(7, 1), (Mains{0, 0}));
  EXPECT_EQ(mains_of(2, 3), (Mains{2, 0}));
  for (int n = 2; n <= 17; ++n) {
    for (int pack = 0; pack < 2 * n; ++pack) {
      const Mains mains = mains_of(pack, n);
      EXPECT_NE(mains.first < n / 2, mains.second < n / 2) << n << " " << pack;
      for (int device = 0; device < n; ++device) {
        const int main = main_for(device, mains, n);
        EXPECT_EQ(main < n / 2, device < n / 2);
        EXPECT_TRUE(main == mains.first || main == mains.second);
      }
    }
  }
}

}  // namespace
}  // namespace lockstep::detail
