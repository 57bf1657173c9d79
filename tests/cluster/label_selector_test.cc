#include "cluster/label_selector.h"

#include "tests/cluster/variables.h"

namespace lockstep::cluster {
namespace {

using testing::AllOf;
using testing::HasSubstr;

const std::map<std::string, std::string> kLabels = {
    {"app", "train"}, {"tier", "gpu"}, {"k8s.io/job-name", "a"}, {"none", ""}};

bool selects(const std::string& text) { return LabelSelector::parse(text).selects(kLabels); }

TEST(LabelSelector, Equality) {
  EXPECT_TRUE(selects("app=train"));
  EXPECT_TRUE(selects("app==train"));
  EXPECT_TRUE(selects(" app = train "));
  EXPECT_TRUE(selects("k8s.io/job-name=a"));
  EXPECT_TRUE(selects("none="));
  EXPECT_FALSE(selects("app=serve"));
  EXPECT_FALSE(selects("app=trains"));
  EXPECT_FALSE(selects("other=train"));
  EXPECT_FALSE(selects("other="));
}

TEST(LabelSelector, InequalityHoldsWithoutTheLabel) {
  EXPECT_FALSE(selects("app!=train"));
  EXPECT_TRUE(selects("app!=serve"));
  EXPECT_TRUE(selects("other!=train"));
}

TEST(LabelSelector, Sets) {
  EXPECT_TRUE(selects("app in (serve, train)"));
  EXPECT_TRUE(selects("app in(train)"));
  EXPECT_FALSE(selects("app in (serve)"));
  EXPECT_FALSE(selects("other in (serve)"));
  EXPECT_FALSE(selects("app notin (serve,train)"));
  EXPECT_TRUE(selects("app notin (serve)"));
  EXPECT_TRUE(selects("other notin (serve)"));
}

TEST(LabelSelector, Existence) {
  EXPECT_TRUE(selects("app"));
  EXPECT_TRUE(selects("none"));
  EXPECT_FALSE(selects("other"));
  EXPECT_FALSE(selects("!app"));
  EXPECT_TRUE(selects("! other"));
}

TEST(LabelSelector, AllRequirementsMustHold) {
  EXPECT_TRUE(selects("app=train,tier in (cpu,gpu),!other"));
  EXPECT_FALSE(selects("app=train,tier=cpu"));
  EXPECT_FALSE(selects("tier=cpu,app=train"));
  EXPECT_TRUE(selects(""));
  EXPECT_TRUE(selects("  "));
}

TEST(LabelSelector, OthersNameTheByte) {
  const auto wrong = [](const std::string& text) {
    return message_of<ConfigError>([&] { LabelSelector::parse(text); });
  };
  EXPECT_THAT(wrong("=a"),
              AllOf(HasSubstr("label selector, byte 0"), HasSubstr("name of a label")));
  EXPECT_THAT(wrong("a=b,"), HasSubstr("byte 4: the name of a label"));
  EXPECT_THAT(wrong(",a"), HasSubstr("byte 0"));
  EXPECT_THAT(wrong("!"), HasSubstr("byte 1"));
  EXPECT_THAT(wrong("a=b c"), HasSubstr("byte 4: a comma"));
  EXPECT_THAT(wrong("a=b=c"), HasSubstr("byte 3"));
  EXPECT_THAT(wrong("a like (b)"), AllOf(HasSubstr("byte 2"), HasSubstr("notin")));
  EXPECT_THAT(wrong("a > 1"), HasSubstr("byte 2"));
  EXPECT_THAT(wrong("a in b"), HasSubstr("byte 5: ( is expected"));
  EXPECT_THAT(wrong("a in (b"), HasSubstr("byte 7: a comma or )"));
  EXPECT_THAT(wrong("a in (b c)"), HasSubstr("byte 8"));
  EXPECT_THAT(wrong("a=\xff"), HasSubstr("\\xff"));
}

}  // namespace
}  // namespace lockstep::cluster
