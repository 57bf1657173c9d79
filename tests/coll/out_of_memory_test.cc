// Memory that is short in this process: SystemError (RESOURCE_EXHAUSTED) that names this rank,
// whichever allocation of a call fails. The n-th does, for every n up to the last.
#include <gmock/gmock.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <new>
#include <string>

#include "lockstep/coll/join.h"
#include "lockstep/log.h"
#include "tests/coll/fixtures.h"
#include "tests/sys/temporary_directory.h"

namespace {

enum class Who : std::uint8_t { this_thread, every_thread };
std::atomic<bool> everywhere = false;
thread_local bool here = false;
std::atomic<long> left = 0;        // allocations that still succeed
std::atomic<bool> failed = false;  // one did not

void* allocated(std::size_t size, std::size_t alignment) {
  if ((here || everywhere) && left.fetch_sub(1) == 0) {
    failed = true;
    throw std::bad_alloc();
  }
  void* const memory =
      alignment == 0
          ? std::malloc(size)
          : std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

// Not inlined: g++ takes what it can see in them for a mismatch.
[[gnu::noinline]] void* operator new(std::size_t size) { return allocated(size, 0); }
[[gnu::noinline]] void* operator new(std::size_t size, std::align_val_t alignment) {
  return allocated(size, static_cast<std::size_t>(alignment));
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t /*size*/) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, std::align_val_t /*alignment*/) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, std::size_t /*size*/,
                                       std::align_val_t /*alignment*/) noexcept {
  std::free(memory);
}

namespace lockstep::coll {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

/// While it lives, allocations count; so many succeed, and the next one fails.
class Shortage {
 public:
  Shortage(Who which, long succeed) {
    left = succeed;
    failed = false;
    here = which == Who::this_thread;
    everywhere = which == Who::every_thread;
  }
  ~Shortage() { here = everywhere = false; }
  Shortage(const Shortage&) = delete;
  Shortage& operator=(const Shortage&) = delete;
};

void expect_names(const std::exception_ptr& thrown, int rank, long succeed) {
  try {
    std::rethrow_exception(thrown);
  } catch (const SystemError& error) {
    EXPECT_EQ(error.code(), Code::resource_exhausted);
    EXPECT_THAT(error.culprits(), ElementsAre(rank)) << succeed << ": " << error.what();
    EXPECT_THAT(error.what(), HasSubstr("rank " + std::to_string(rank) + ": out of memory"));
  } catch (const std::exception& error) {
    ADD_FAILURE() << "after " << succeed << " allocations: " << error.what();
  }
}

/// The calls' own memory, so that only the library's can be short.
thread_local std::array<float, 100'000> numbers;
thread_local std::array<int, 8> gathered;

std::span<float> some(std::size_t count) { return std::span(numbers).first(count); }

struct Case {
  const char* name;
  std::function<void(Session&)> call;  // of all ranks
  int ranks = 2;
};

/// More than a call has room for by itself.
Batch large_batch(Session& group) {
  Batch batch = group.batch();
  for (std::size_t i = 0; i < 20; ++i) batch.all_reduce(Op::sum, some(200).subspan(10 * i, 10));
  return batch;
}

const Case kCases[] = {
    {"AllReduce", [](Session& group) { group.all_reduce(Op::sum, some(100'000), {.name = "x"}); }},
    {"SmallAllReduce",
     [](Session& group) {
       for (int i = 0; i < 3; ++i) group.all_reduce(Op::sum, some(4));
     }},
    {"StartAllReduce", [](Session& group) { group.start_all_reduce(Op::sum, some(1000)).wait(); }},
    {"InHalfTheBytes",
     [](Session& group) { group.all_reduce(Op::sum, some(1000), {.wire = WireType::bf16}); }},
    {"AllGatherOfOtherCounts",
     [](Session& group) {
       constexpr std::array<std::uint64_t, 2> kCounts = {3, 5};
       const std::array<int, 5> mine{};
       group.all_gather(std::span(mine).first(kCounts[static_cast<std::size_t>(group.rank())]),
                        std::span(gathered), kCounts);
     }},
    {"Message",
     [](Session& group) {
       if (group.rank() == 0) {
         group.receive(some(1000), From{1});
       } else {
         group.send(some(1000), To{0});
       }
     }},
    {"Split", [](Session& group) { group.split({.color = 0}).barrier(); }},
    {"Batch", [](Session& group) { large_batch(group).run(); }},
    {"StartBatch", [](Session& group) { large_batch(group).start().wait(); }},
    {"Allocate", [](Session& group) { (void)group.allocate(1000); }},
    {"StartAllReduceAlone",
     [](Session& group) { group.start_all_reduce(Op::sum, some(1000)).wait(); }, 1},
    {"SplitAlone", [](Session& group) { group.split({.color = 0}).barrier(); }, 1},
    {"StartBatchAlone", [](Session& group) { large_batch(group).start().wait(); }, 1},
};

class OutOfMemory : public testing::TestWithParam<Case> {
 protected:
  OutOfMemory() {
    set_log_sink([](LogLevel, std::string_view) {});
  }
  ~OutOfMemory() override { set_log_sink({}); }
};

TEST_P(OutOfMemory, NamesTheRankThatLacksIt) {
  const int ranks = GetParam().ranks;
  const int last = ranks - 1;
  long succeed = 0;
  for (bool lacks = true; lacks; ++succeed) {
    ASSERT_LT(succeed, 5000);
    const auto thrown = outcomes(ranks, [&](Session& group) {
      if (group.rank() != last) return GetParam().call(group);
      // A group of one has no threads but those of this rank, the pump's included.
      const Shortage shortage(ranks == 1 ? Who::every_thread : Who::this_thread, succeed);
      GetParam().call(group);
    });
    lacks = failed;
    if (thrown.back()) expect_names(thrown.back(), last, succeed);
    if (ranks == 1 || !thrown[0]) continue;  // it needed nothing of the other
    const Error* const other = as<Error>(thrown[0]);
    ASSERT_NE(other, nullptr) << succeed;
    EXPECT_THAT(other->culprits(), ElementsAre(last)) << succeed << ": " << other->what();
  }
  EXPECT_GT(succeed, 1) << "nothing was allocated";
}

/// Rank 0 never comes. A failed call to it is made again, whatever failed.
TEST(OutOfMemoryWhileJoining, NamesTheRank) {
  set_log_sink([](LogLevel, std::string_view) {});
  const TemporaryDirectory directory;
  JoinOptions options;
  options.rank = 1;
  options.addresses = {"unix:" + directory.path() + "/meet", ""};
  options.timeout = std::chrono::milliseconds(200);
  int named = 0;
  long succeed = 0;
  for (bool lacks = true; lacks; succeed += 1 + succeed / 16) {
    ASSERT_LT(succeed, 100'000);
    try {
      const Shortage shortage(Who::this_thread, succeed);
      (void)join(options);
    } catch (const Timeout&) {
    } catch (...) {
      expect_names(std::current_exception(), 1, succeed);
      ++named;
    }
    lacks = failed;
  }
  EXPECT_GT(named, 10);
  set_log_sink({});
}

INSTANTIATE_TEST_SUITE_P(Of, OutOfMemory, testing::ValuesIn(kCases),
                         [](const auto& each) { return each.param.name; });

}  // namespace
}  // namespace lockstep::coll
