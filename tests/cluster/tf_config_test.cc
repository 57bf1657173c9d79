#include "cluster/tf_config.h"

#include <locale.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "tests/cluster/variables.h"

namespace lockstep {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::string config(const std::string& task, const std::string& more = "") {
  return R"({"cluster": {"ps": ["ps0:2222", "ps1:2222"],
                         "worker": ["worker0:2222", "worker1:2222", "worker2:2222"]},
             "task": )" +
         task + more + "}";
}

TfConfigResolver resolver_of(const std::string& text, TaskOptions options = {}) {
  return TfConfigResolver(std::move(options), view_of({{"TF_CONFIG", text}}));
}

TEST(TfConfigResolver, Case102Cluster) {
  const auto resolver = resolver_of(config(R"({"type": "ps", "index": 0})"));
  EXPECT_EQ(resolver.cluster_spec(),
            ClusterSpec({{"ps", {"ps0:2222", "ps1:2222"}},
                         {"worker", {"worker0:2222", "worker1:2222", "worker2:2222"}}}));
  EXPECT_EQ(resolver.task_type(), "ps");
  EXPECT_EQ(resolver.task_id(), 0);
  EXPECT_EQ(resolver.rpc_layer(), std::nullopt);
  EXPECT_EQ(resolver.master(), "ps0:2222");
  EXPECT_EQ(resolver.master({.task_type = "worker", .task_id = 1}), "worker1:2222");
  EXPECT_EQ(resolver.master({.task_type = "worker", .task_id = 1, .rpc_layer = "grpc"}),
            "grpc://worker1:2222");
  EXPECT_THAT(resolver.num_accelerators(), IsEmpty());
  EXPECT_EQ(resolver.environment(), "");
}

TEST(TfConfigResolver, Case102RpcLayerAndSessionMaster) {
  const std::string task = R"({"type": "ps", "index": 0})";
  EXPECT_EQ(resolver_of(config(task, R"(, "rpc_layer": "grpc")")).master(), "grpc://ps0:2222");
  EXPECT_EQ(resolver_of(config(task, R"(, "rpc_layer": "grpc")"), {.rpc_layer = "other"}).master(),
            "other://ps0:2222");
  EXPECT_EQ(resolver_of(config(task, R"(, "session_master": "sessionmaster:2222",
                                          "rpc_layer": "grpc")"))
                .master(),
            "sessionmaster:2222");
}

TEST(TfConfigResolver, Case102NoMasterWhenAlone) {
  EXPECT_EQ(resolver_of("{}").master(), "");
  EXPECT_EQ(resolver_of(R"({"cluster": {"worker": ["a:1"]}})").master(), "");
  EXPECT_EQ(TfConfigResolver({}, view_of({})).master(), "");
  EXPECT_THAT(message_of<ConfigError>(
                  [] { (void)resolver_of(R"({"cluster": {"worker": ["a:1", "b:1"]}})").master(); }),
              HasSubstr("no \"task\""));
}

TEST(TfConfigResolver, WithoutClusterOrTask) {
  for (const char* text :
       {"{}", R"({"cluster": {}})", R"({"task": {}, "other": [1, {"a": null}]})"}) {
    const auto resolver = resolver_of(text);
    EXPECT_FALSE(resolver.cluster_spec()) << text;
    EXPECT_EQ(resolver.task_type(), std::nullopt);
    EXPECT_EQ(resolver.task_id(), std::nullopt);
  }
  EXPECT_FALSE(TfConfigResolver({}, view_of({})).cluster_spec());
}

TEST(TfConfigResolver, Case102OptionsAndSettersWin) {
  auto resolver = resolver_of(config(R"({"type": "ps", "index": 0})"),
                              {.task_type = "worker", .task_id = 1, .rpc_layer = "grpc"});
  EXPECT_EQ(resolver.task_type(), "worker");
  EXPECT_EQ(resolver.task_id(), 1);
  EXPECT_EQ(resolver.master(), "grpc://worker1:2222");
  resolver.set_task_id(2);
  EXPECT_EQ(resolver.master(), "grpc://worker2:2222");
}

TEST(TfConfigResolver, ReadsTheVariableAnewEachTime) {
  std::string text = "{}";
  const TfConfigResolver resolver({}, [&text](const std::string&) { return std::optional(text); });
  EXPECT_FALSE(resolver.cluster_spec());
  text = R"({"cluster": {"worker": ["a:1"]}})";
  EXPECT_TRUE(resolver.cluster_spec());
  text = "nonsense";  // an error at the next access, not before
  EXPECT_THROW((void)resolver.cluster_spec(), ConfigError);
  EXPECT_THROW((void)resolver.task_type(), ConfigError);
}

std::optional<int> index_of(const std::string& json) {
  return resolver_of(config(R"({"type": "worker", "index": )" + json + "}")).task_id();
}

TEST(TfConfigResolver, Case102IndexIsWhatPythonsIntTakes) {
  EXPECT_EQ(index_of("1"), 1);
  EXPECT_EQ(index_of(R"("1")"), 1);
  EXPECT_EQ(index_of(R"(" +1 ")"), 1);
  EXPECT_EQ(index_of(R"("00_1")"), 1);
  EXPECT_EQ(index_of("-1"), -1);  // refused where a task is needed
  EXPECT_EQ(index_of("true"), 1);
  EXPECT_EQ(index_of("2147483647"), 2147483647);
  const Logged logged;
  EXPECT_EQ(index_of("1.0"), 1);
  EXPECT_EQ(index_of("1.9"), 1);
  EXPECT_EQ(index_of("1e0"), 1);
  EXPECT_THAT(logged.lines(), ElementsAre(HasSubstr("1.0"), HasSubstr("1.9"), HasSubstr("1e0")));
}

TEST(TfConfigResolver, OtherIndicesAreRefused) {
  const Logged logged;
  for (const char* json : {R"("")", R"("one")", R"("1.0")", R"("1__0")", R"("_1")", R"("1_")",
                           R"("+")", R"("- 1")", "null", "[]", "{}", "2147483648",
                           "99999999999999999999999", "1e300", "-1e300", R"("99999999999")"}) {
    EXPECT_THAT(message_of<ConfigError>([&] { index_of(json); }),
                AllOf(HasSubstr("TF_CONFIG, byte "), HasSubstr("index"), HasSubstr("from 0")))
        << json;
  }
}

TEST(TfConfigResolver, Case102ATypeMayBeANumber) {
  EXPECT_EQ(resolver_of(config(R"({"type": 123456})")).task_type(), "123456");
  EXPECT_EQ(resolver_of(config(R"({"type": 1.50})")).task_type(), "1.50");
  for (const char* json : {"null", "true", "[]"}) {
    EXPECT_THAT(message_of<ConfigError>([&] {
                  (void)resolver_of(config(std::string(R"({"type": )") + json + "}")).task_type();
                }),
                AllOf(HasSubstr("TF_CONFIG, byte "), HasSubstr("the task's type is")));
  }
}

TEST(TfConfigResolver, JobsWithGaps) {
  EXPECT_EQ(
      resolver_of(R"({"cluster": {"worker": {"1": "h:1", "4": "i:1"}, "ps": {}}})").cluster_spec(),
      ClusterSpec({{"worker", {{1, "h:1"}, {4, "i:1"}}}, {"ps", {}}}));
}

constexpr std::size_t kMebibyte = 1 << 20;

struct Wrong {
  std::string text;
  std::size_t offset;
  std::string rule;
};

class WrongTfConfig : public testing::TestWithParam<Wrong> {};

TEST_P(WrongTfConfig, NamesByteRuleAndSurroundings) {
  const Wrong& wrong = GetParam();
  const std::string message =
      message_of<ConfigError>([&] { cluster::parse_tf_config(wrong.text); });
  EXPECT_THAT(message, HasSubstr("TF_CONFIG, byte " + std::to_string(wrong.offset) + ": "));
  EXPECT_THAT(message, HasSubstr(wrong.rule));
  EXPECT_LT(message.size(), 400U);
}

INSTANTIATE_TEST_SUITE_P(
    NotJson, WrongTfConfig,
    testing::Values(Wrong{"", 0, "ends too early"}, Wrong{"{", 1, "ends too early"},
                    Wrong{R"({"cluster": {"worker": ["a:1)", 28, "ends too early"},
                    Wrong{R"({"cluster": {"worker": ["a:1")", 29, "ends too early"},
                    Wrong{"{'cluster': {}}", 1, "double quotes"},
                    Wrong{"\xEF\xBB\xBF{}", 0, "byte order mark"},
                    Wrong{R"({"cluster": {},})", 15, "remove the comma"},
                    Wrong{R"({"cluster": {"worker": ["a:1",]}})", 30, "remove the comma"},
                    Wrong{"{} {}", 3, "not JSON"}, Wrong{R"({"a": tru})", 9, "not JSON"},
                    Wrong{R"({"a": 01})", 7, "not JSON"}, Wrong{"{\"a\": \"\x01\"}", 7, "not JSON"},
                    Wrong{"{\"a\": \"\xff\"}", 7, "not JSON"},
                    Wrong{R"({"a": 1e999})", 10, "not JSON"}, Wrong{"nonsense", 1, "not JSON"},
                    Wrong{std::string(17, '['), 16, "more than 16 levels"},
                    Wrong{std::string(100'000, '['), 16, "more than 16 levels"},
                    Wrong{"{}" + std::string(1, '\0') + "{", 2, "a NUL byte"},
                    Wrong{std::string(1, '\0'), 0, "a NUL byte"},
                    Wrong{"{\"a\": \"x" + std::string(1, '\0') + "y\"}", 8, "a NUL byte"},
                    Wrong{"{}" + std::string(kMebibyte, ' '), kMebibyte, "more than 1048576"},
                    Wrong{R"({"task": {}, "task": {}})", 13, "twice, first at byte 1"},
                    Wrong{R"({"cluster": {"ps": [], "p\u0073": []}})", 23, "twice"}));

INSTANTIATE_TEST_SUITE_P(
    NoCluster, WrongTfConfig,
    testing::Values(
        Wrong{R"({"\"\\": "a\", ", "b": [1, -2.5e3, true], "task": []})", 50, "a list"},
        Wrong{"[]", 0, "a list and must be an object"}, Wrong{"  3", 2, "a number"},
        Wrong{R"({"cluster": []})", 12, "\"cluster\" is a list"},
        Wrong{R"({"cluster": "a:1"})", 12, "a string and must be an object"},
        Wrong{R"({"cluster": null})", 12, "null"}, Wrong{R"({"task": "worker"})", 9, "\"task\""},
        Wrong{R"({"rpc_layer": 7})", 14, "\"rpc_layer\""},
        Wrong{R"({"session_master": []})", 19, "\"session_master\""},
        Wrong{R"({"cluster": {"": ["a:1"]}})", 13, "no name"},
        Wrong{R"({"cluster": {"worker": "a:1"}})", 23, "job 'worker' is a string"},
        Wrong{R"({"cluster": {"worker": ["a:1", 7]}})", 31, "the address of worker 1 is a number"},
        Wrong{R"({"cluster": {"worker": ["a:1", "b"]}})", 31, "the port is missing"},
        Wrong{R"({"cluster": {"worker": ["a:1", ""]}})", 31, "worker 1: \"\""},
        Wrong{R"({"cluster": {"worker": ["a:0"]}})", 24, "port 0"},
        Wrong{R"({"cluster": {"worker": ["a:65536"]}})", 24, "above 65535"},
        Wrong{R"({"cluster": {"worker": ["a :1"]}})", 24, "space"},
        Wrong{R"({"cluster": {"worker": ["::1:5"]}})", 24, "brackets"},
        Wrong{R"({"cluster": {"worker": ["/tmp/x"]}})", 24, "unix:"},
        Wrong{R"({"cluster": {"worker": ["grpc://a:1"]}})", 24, "URL"},
        Wrong{R"({"cluster": {"worker": {"a": "a:1"}}})", 24, "index of a task"},
        Wrong{R"({"cluster": {"worker": {"-1": "a:1"}}})", 24, "0 to 65535"},
        Wrong{R"({"cluster": {"worker": {"65536": "a:1"}}})", 24, "0 to 65535"},
        Wrong{R"({"cluster": {"worker": {"99999999999": "a:1"}}})", 24, "0 to 65535"},
        Wrong{R"({"cluster": {"worker": {"1": "a:1", "01": "b:1"}}})", 36, "task 1 of job"}));

/// A locale of this thread, until destruction, in which `point` separates the fraction of a number.
/// It is written for this test, because a machine need not have any locale but C.
class DecimalPoint {
 public:
  explicit DecimalPoint(const std::string& point) {
    std::filesystem::create_directories(directory_ / "here");
    // The compiled form that glibc loads: a magic number, six offsets and the six values, which
    // are the two separators, the grouping, both separators as wide characters, and the charset.
    const std::vector<std::string> values = {point + '\0',
                                             std::string(1, '\0'),
                                             "\x7f",
                                             std::string("\x2c\0\0\0", 4),
                                             std::string("\x2e\0\0\0", 4),
                                             std::string("UTF-8\0", 6)};
    std::string head;
    const auto add = [&head](std::uint32_t word) {
      head.append(reinterpret_cast<const char*>(&word), sizeof word);
    };
    std::string body;
    constexpr std::uint32_t start = 32;
    add(0x20031115U ^ LC_NUMERIC);
    add(static_cast<std::uint32_t>(values.size()));
    for (const std::string& value : values) {
      if (value.size() == 4) body.resize((body.size() + 3) / 4 * 4);  // words are aligned
      add(start + static_cast<std::uint32_t>(body.size()));
      body += value;
    }
    std::ofstream(directory_ / "here" / "LC_NUMERIC", std::ios::binary) << head << body;
    ::setenv("LOCPATH", directory_.c_str(), 1);
    locale_ = ::newlocale(LC_NUMERIC_MASK, "here", nullptr);
    ::unsetenv("LOCPATH");
    if (locale_ != nullptr) before_ = ::uselocale(locale_);
  }
  ~DecimalPoint() {
    if (locale_ != nullptr) {
      ::uselocale(before_);
      ::freelocale(locale_);
    }
    std::filesystem::remove_all(directory_);
  }
  DecimalPoint(const DecimalPoint&) = delete;
  DecimalPoint& operator=(const DecimalPoint&) = delete;

 private:
  std::filesystem::path directory_ =
      std::filesystem::path(testing::TempDir()) / ("locale-" + std::to_string(::getpid()));
  locale_t locale_ = nullptr;
  locale_t before_ = nullptr;
};

void read_numbers_in_other_locales() {
  const Logged logged;
  for (const std::string point : {",", "\xd9\xab"}) {  // of de_DE and of ps_AF
    const DecimalPoint there(point);
    ASSERT_EQ(::localeconv()->decimal_point, point);
    EXPECT_EQ(index_of("1.0"), 1);
    EXPECT_EQ(index_of("1.9"), 1);
    EXPECT_EQ(resolver_of(config(R"({"type": 1.50})")).task_type(), "1.50");
    EXPECT_EQ(::localeconv()->decimal_point, point);  // it is the user's again
  }
}

// In a process of its own: glibc never frees the list that it makes of LOCPATH.
TEST(TfConfigDeathTest, NumbersDoNotDependOnTheLocale) {
  EXPECT_EXIT(
      {
        read_numbers_in_other_locales();
        std::_Exit(testing::Test::HasFailure() ? 1 : 0);
      },
      testing::ExitedWithCode(0), "");
}

TEST(TfConfig, UpToTheLimitsIsRead) {
  const std::string levels = std::string(15, '[') + std::string(15, ']');
  std::string text = R"({"other": )" + levels + R"(, "cluster": {"worker": ["a:1"]}})";
  text.append(kMebibyte - text.size(), ' ');
  EXPECT_EQ(cluster::parse_tf_config(text).cluster.num_tasks("worker"), 1);
}

TEST(TfConfig, FortyCharactersAreShown) {
  const std::string text = R"({"cluster": {"worker": ["one:1", "two:1", three, "four:1"]}})";
  EXPECT_THAT(message_of<ConfigError>([&] { cluster::parse_tf_config(text); }),
              HasSubstr(R"(near `...["one:1", "two:1", three, "four:1"]}}`)"));
  EXPECT_THAT(message_of<ConfigError>([] { cluster::parse_tf_config("{\"\x01\xc3\": 1}"); }),
              HasSubstr(R"(`{"\x01\xc3": 1}`)"));
}

TEST(TfConfig, AnAddressTwiceNamesBothEntries) {
  const auto twice = [](const std::string& text) {
    return message_of<ConfigError>([&] { cluster::parse_tf_config(text); });
  };
  EXPECT_THAT(twice(R"({"cluster": {"worker": ["a:1", "b:1", "a:1"]}})"),
              AllOf(HasSubstr("TF_CONFIG"), HasSubstr("worker 0 (byte 24)"),
                    HasSubstr("worker 2 (byte 38)"), HasSubstr("a:1")));
  EXPECT_THAT(twice(R"({"cluster": {"ps": ["node:1"], "worker": ["Node:01"]}})"),
              AllOf(HasSubstr("ps 0"), HasSubstr("worker 0")));
}

TEST(TfConfig, LocalAndOtherHostsDoNotMix) {
  EXPECT_THAT(message_of<ConfigError>([] {
                cluster::parse_tf_config(R"({"cluster": {"worker": ["localhost:1", "b:1"]}})");
              }),
              AllOf(HasSubstr("worker 0"), HasSubstr("localhost:1"), HasSubstr("worker 1"),
                    HasSubstr("b:1")));
  const auto local = cluster::parse_tf_config(
      R"({"cluster": {"worker": ["localhost:1", "127.0.0.1:1", "[::1]:1"]}})");
  EXPECT_EQ(local.cluster.num_tasks("worker"), 3);
}

}  // namespace
}  // namespace lockstep
