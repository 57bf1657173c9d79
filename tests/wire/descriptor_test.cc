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
  d.name = Name("conv1.weight");
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

TEST(Descriptor, FingerprintCoversEverything) {
  const Descriptor d = sample();
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
  EXPECT_TRUE(differs([](Descriptor& c) { c.name = Name("conv2.weight"); }));
  EXPECT_TRUE(differs([](Descriptor& c) { c.name = Name(); }));
}

TEST(Descriptor, SurvivesWhateverAPeerSends) {
  Descriptor d;
  d.kind = 200;
  d.op = 200;
  d.dtype = 200;
  d.wire = 200;
  d.name.text.fill('x');  // no terminator
  EXPECT_EQ(describe(d), "? \"" + std::string(d.name.text.size(), 'x') + "\"");
  d.name = Name("a\x1b[2Jb\n");
  EXPECT_EQ(describe(d), "? \"a?[2Jb?\"");
}

TEST(Name, ALongOneShowsItsEndAndCountsAsAWhole) {
  const std::string tail = "layers.11.attention.query.weight";
  const Name encoder("a.model.of.several.modules.encoder." + tail);
  const Name decoder("a.model.of.several.modules.decoder." + tail);
  EXPECT_EQ(encoder.view().substr(0, 27), "..." + tail.substr(tail.size() - 23) + "#");
  EXPECT_NE(encoder.hash, decoder.hash);
  EXPECT_NE(encoder.view(), decoder.view()) << "two rows of a table would look alike";
  EXPECT_EQ(Name(std::string(31, 'n')).view(), std::string(31, 'n'));
  const std::string cut(Name(std::string(32, 'n')).view());
  EXPECT_EQ(cut.substr(0, 27), "..." + std::string(23, 'n') + "#");
  EXPECT_EQ(cut.size(), 31U);
}

}  // namespace
}  // namespace lockstep::wire
