#include "wire/descriptor.h"

#include <gtest/gtest.h>

#include "lockstep/dtype.h"
#include "lockstep/op.h"

namespace lockstep::wire {
namespace {

Descriptor sample() {
  Descriptor d;
  d.sequence = 12;
  d.count = 7;
  d.kind = 2;
  d.dtype = static_cast<std::uint8_t>(DType::float32);
  d.root = 1;
  d.set_name("conv1.weight");
  return d;
}

TEST(Descriptor, DescribesWhatWasAskedFor) {
  EXPECT_EQ(describe(sample()), "broadcast float32[7] root 1 \"conv1.weight\"");
  Descriptor barrier;
  barrier.kind = 8;
  EXPECT_EQ(describe(barrier), "barrier");
  Descriptor rounded = sample();
  rounded.wire = static_cast<std::uint8_t>(DType::bfloat16);
  EXPECT_EQ(describe(rounded), "broadcast float32[7] as bfloat16 root 1 \"conv1.weight\"");
}

TEST(Descriptor, FingerprintCoversEverythingButTheName) {
  const Descriptor d = sample();
  Descriptor other = d;
  other.set_name("conv2.weight");
  EXPECT_EQ(fingerprint(d), fingerprint(other));
  const auto differs = [&](auto change) {
    Descriptor changed = d;
    change(changed);
    return fingerprint(changed) != fingerprint(d);
  };
  EXPECT_TRUE(differs([](Descriptor& c) { ++c.sequence; }));
  EXPECT_TRUE(differs([](Descriptor& c) { ++c.count; }));
  EXPECT_TRUE(differs([](Descriptor& c) { ++c.shape_hash; }));
  EXPECT_TRUE(differs([](Descriptor& c) { ++c.plan_hash; }));
  EXPECT_TRUE(differs([](Descriptor& c) { ++c.root; }));
  EXPECT_TRUE(differs([](Descriptor& c) { ++c.to; }));
  EXPECT_TRUE(differs([](Descriptor& c) { ++c.kind; }));
  EXPECT_TRUE(differs([](Descriptor& c) { ++c.op; }));
  EXPECT_TRUE(differs([](Descriptor& c) { ++c.dtype; }));
  EXPECT_TRUE(differs([](Descriptor& c) { ++c.wire; }));
  EXPECT_TRUE(differs([](Descriptor& c) { ++c.group; }));
}

TEST(Descriptor, SurvivesWhateverAPeerSends) {
  Descriptor d;
  d.kind = 200;
  d.op = 200;
  d.dtype = 200;
  d.wire = 200;
  d.name.fill('x');  // no terminator
  EXPECT_EQ(describe(d), "? \"" + std::string(d.name.size(), 'x') + "\"");
  d.set_name("a\x1b[2Jb\n");
  EXPECT_EQ(describe(d), "? \"a?[2Jb?\"");
}

TEST(Descriptor, CutsLongNames) {
  Descriptor d;
  d.set_name(std::string(100, 'n'));
  EXPECT_EQ(d.name_text(), std::string(d.name.size() - 1, 'n'));
}

}  // namespace
}  // namespace lockstep::wire
