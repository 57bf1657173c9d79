#include "tensor/parts.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <mutex>
#include <set>
#include <stdexcept>
#include <thread>
#include <vector>

namespace lockstep::tensor {
namespace {

class LibtorchThreads {
 public:
  explicit LibtorchThreads(int count) { at::set_num_threads(count); }
  ~LibtorchThreads() { at::set_num_threads(before_); }
  LibtorchThreads(const LibtorchThreads&) = delete;
  LibtorchThreads& operator=(const LibtorchThreads&) = delete;

 private:
  int before_ = at::get_num_threads();
};

/// The threads that took a part of the tensor. Every element must be in one part.
std::set<std::thread::id> threads_of(const Tensor& tensor) {
  std::mutex mutex;
  std::set<std::thread::id> threads;
  std::vector<int> visits(static_cast<std::size_t>(tensor.numel()), 0);
  in_parts(tensor, [&](std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i) ++visits.at(i);
    const std::lock_guard lock(mutex);
    threads.insert(std::this_thread::get_id());
  });
  for (const int count : visits) {
    if (count != 1) ADD_FAILURE() << "an element was visited " << count << " times";
  }
  return threads;
}

TEST(Parts, AreTakenByAsManyThreadsAsLibtorchHas) {
  const Tensor large = torch::empty({3, 70'001});
  for (const int count : {1, 2, 3, 4}) {
    const LibtorchThreads threads(count);
    for (int i = 0; i < 20; ++i) {
      const auto seen = threads_of(large);
      EXPECT_EQ(seen.size(), kPartsAreSerial ? 1U : static_cast<std::size_t>(count));
      EXPECT_TRUE(seen.contains(std::this_thread::get_id()));
    }
  }
}

TEST(Parts, ASmallTensorIsOnePartOfTheCallingThread) {
  const LibtorchThreads threads(4);
  const std::set<std::thread::id> own = {std::this_thread::get_id()};
  EXPECT_EQ(threads_of(torch::empty(1)), own);
  EXPECT_EQ(threads_of(torch::empty(at::internal::GRAIN_SIZE)), own);
  EXPECT_EQ(threads_of(torch::empty(at::internal::GRAIN_SIZE + 1)).size(),
            kPartsAreSerial ? 1U : 2U);
  EXPECT_TRUE(threads_of(torch::empty(0)).empty());
}

TEST(Parts, AreInTheOrderOfMemory) {
  const LibtorchThreads threads(2);
  const Tensor turned = torch::zeros({300, 500}).t();
  auto* const memory = turned.data_ptr<float>();
  in_parts(turned, [&](std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i) memory[i] = static_cast<float>(i);
  });
  EXPECT_TRUE(turned.t().reshape(-1).equal(torch::arange(300 * 500, torch::kFloat)));
}

TEST(Parts, AnExceptionReachesTheCaller) {
  const LibtorchThreads threads(2);
  EXPECT_THROW(in_parts(torch::empty(100'000),
                        [](std::size_t, std::size_t end) {
                          if (end == 100'000) throw std::runtime_error("the last part");
                        }),
               std::runtime_error);
}

}  // namespace
}  // namespace lockstep::tensor
