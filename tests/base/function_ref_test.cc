#include "base/function_ref.h"

#include <gtest/gtest.h>

#include <memory>

namespace lockstep {
namespace {

int apply_twice(FunctionRef<int(int)> f, int x) { return f(f(x)); }

TEST(FunctionRef, CallsWhatItRefersTo) {
  EXPECT_EQ(apply_twice([](int x) { return x + 1; }, 5), 7);
  const auto times_three = [](int x) { return 3 * x; };
  EXPECT_EQ(apply_twice(times_three, 2), 18);
}

TEST(FunctionRef, ChangesTheOriginalNotACopy) {
  int calls = 0;
  auto counter = [calls]() mutable { return ++calls; };
  const FunctionRef<int()> ref = counter;
  const FunctionRef<int()> copy = ref;  // NOLINT(performance-unnecessary-copy-initialization)
  ref();
  copy();
  EXPECT_EQ(counter(), 3);
}

TEST(FunctionRef, PassesReferencesAndMoveOnlyArguments) {
  int value = 1;
  const auto set = [](int& target, std::unique_ptr<int> source) { target = *source; };
  const FunctionRef<void(int&, std::unique_ptr<int>)> ref = set;
  ref(value, std::make_unique<int>(9));
  EXPECT_EQ(value, 9);
}

TEST(FunctionRef, TakesOnlyWhatCanBeCalledThatWay) {
  const auto wants_text = [](const char*) { return 1; };
  EXPECT_FALSE((std::is_constructible_v<FunctionRef<int(int)>, decltype(wants_text)&>));
  EXPECT_TRUE((std::is_constructible_v<FunctionRef<int(const char*)>, decltype(wants_text)&>));
}

}  // namespace
}  // namespace lockstep
