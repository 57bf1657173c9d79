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
  Descriptor unended;
  unended.description.text.fill('y');
  EXPECT_EQ(describe(unended), std::string(unended.description.text.size(), 'y'));
  EXPECT_EQ(unended.used_bytes(), sizeof(Descriptor));
  d.name = Name("a\x1b[2Jb\n");
  EXPECT_EQ(describe(d), "? \"a\\x1b[2Jb\\x0a\"");
}

TEST(Descriptor, ADescriptionIsShownAndNotCompared) {
  Descriptor d = sample();
  d.description = Description("gather int64[1, 2]", {"/home/me/src/train.cc", 88});
  EXPECT_EQ(describe(d), "gather int64[1, 2] at train.cc:88");
  EXPECT_EQ(describe_fully(d),
            "gather int64[1, 2] at train.cc:88 (broadcast float32[7] root 1 \"conv1.weight\")");
  EXPECT_EQ(fingerprint(d), fingerprint(sample()));
  EXPECT_EQ(place_of(d, {"train.cc", 88}), "") << "it says so already";
  EXPECT_EQ(place_of(sample(), {"train.cc", 88}), " at train.cc:88");
  EXPECT_EQ(place_of(sample(), {}), "");
  d.description = Description("seed", {});
  EXPECT_EQ(describe(d), "seed");
  d.description = Description("a\x1b[2Jb", {"c\n.cc", 1});
  EXPECT_EQ(describe(d), "a\\x1b[2Jb at c\\x0a.cc:1");
}

TEST(Descriptor, ALongDescriptionKeepsThePlace) {
  const std::string shapes(200, 's');
  const std::string folders = "/a/very/long/way/to/";
  const std::string file(60, 'f');
  const std::string text(Description(shapes, {"train.cc", 1234567}).view());
  EXPECT_EQ(text.size(), 95U);
  EXPECT_EQ(text.substr(text.size() - 23), "... at train.cc:1234567");
  const std::string cut(Description("gather", {(folders + file).c_str(), 2147483647}).view());
  EXPECT_EQ(cut, "gather at ..." + std::string(40, 'f') + ":2147483647");
  Descriptor d = sample();
  EXPECT_EQ(d.used_bytes(), offsetof(Descriptor, description) + 1);
  d.description = Description(shapes, {"train.cc", 1});
  EXPECT_EQ(d.used_bytes(), sizeof(Descriptor));
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
