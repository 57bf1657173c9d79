// What users and launchers get wrong in the description of a cluster: each is refused at once, and
// the message names the variable or the key that is wrong.
#include <time.h>

#include <algorithm>
#include <chrono>
#include <functional>

#include "cluster/placement.h"
#include "lockstep/kubernetes_resolver.h"
#include "tests/cluster/variables.h"

namespace lockstep {
namespace {

using testing::HasSubstr;

struct Malformed {
  std::string what;
  std::function<void()> read;
  std::vector<std::string> named;  // in the message
};

/// The process is started with these variables.
Malformed started(const std::string& what, const Variables& variables, const std::string& named) {
  return {what, [variables] { cluster::from_environment(view_of(variables)); }, {named}};
}

std::vector<Malformed> each(const Variables& right, const std::string& name,
                            const std::vector<std::string>& values) {
  std::vector<Malformed> all;
  for (const std::string& value : values) {
    all.push_back(started(name + "=" + value.substr(0, 40), with(right, {{name, value}}), name));
  }
  return all;
}

std::vector<Malformed> missing(const Variables& right, const std::vector<std::string>& names) {
  std::vector<Malformed> all;
  for (const std::string& name : names) {
    all.push_back(started("without " + name, without(right, name), name));
  }
  return all;
}

std::vector<Malformed> joined(const std::vector<std::vector<Malformed>>& parts) {
  std::vector<Malformed> all;
  for (const auto& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

#ifdef __SANITIZE_THREAD__  // every access costs several times as much
constexpr std::chrono::milliseconds kAtOnce(1000);
#else
constexpr std::chrono::milliseconds kAtOnce(100);
#endif

const std::string kLong(100'000, 'x');

const std::vector<std::string> kNoNumbers = {
    "", " ", "x", "-1", "1.0", "1 ", " 1", "0x1", "4294967296", std::string(100'000, '9'), "\xff"};

std::chrono::nanoseconds time_of_this_thread() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec);
}

/// Reading waits for nobody, so that the time it takes is the thread's own.
void expect_refused(const std::vector<Malformed>& table) {
  for (const Malformed& one : table) {
    SCOPED_TRACE(one.what);
    // The best of a few, and of this thread alone: the machine may be busy with something else.
    auto best = std::chrono::nanoseconds::max();
    for (int attempt = 0; attempt < 5 && best > kAtOnce; ++attempt) {
      const auto start = time_of_this_thread();
      const std::string message = message_of<ConfigError>(one.read);
      best = std::min(best, time_of_this_thread() - start);
      for (const std::string& name : one.named) EXPECT_THAT(message, HasSubstr(name));
      EXPECT_LT(message.size(), 1000U);
    }
    EXPECT_LT(best, kAtOnce);
  }
}

const Variables kOwn = {{"LOCKSTEP_RANK", "1"}, {"LOCKSTEP_ADDRESSES", "a:1,b:1"}};

TEST(MalformedInput, Own) {
  expect_refused(
      joined({each(kOwn, "LOCKSTEP_RANK", kNoNumbers), each(kOwn, "LOCKSTEP_RANK", {"2"}),
              each(kOwn, "LOCKSTEP_ADDRESSES",
                   {"",
                    ",",
                    ",b:1",
                    "a",
                    "a:0,b:1",
                    "a:65536,b:1",
                    "a:x,b:1",
                    "a:1 b:1",
                    "a:1, b:1",
                    "a:1;b:1",
                    "a:1,a:1",
                    "a:1,A:01",
                    "localhost:1,b:1",
                    "http://a:1,b:1",
                    "::1:1,b:1",
                    "[::1:1,b:1",
                    "unix:,b:1",
                    "a:1\n,b:1",
                    kLong + ":1,b:1",
                    kLong,
                    "unix:" + kLong,
                    "a:1" + std::string(100'000, ',')}),
              missing(kOwn, {"LOCKSTEP_RANK", "LOCKSTEP_ADDRESSES"})}));
}

/// The text as it stands in TF_CONFIG, and what the message must name beside that.
Malformed tf_config(const std::string& text, const std::string& key) {
  Malformed one = started("TF_CONFIG=" + text.substr(0, 60), {{"TF_CONFIG", text}}, "TF_CONFIG");
  one.named.push_back(key);
  return one;
}

Malformed task(const std::string& json, const std::string& key) {
  return tf_config(R"({"cluster": {"worker": ["a:1", "b:1"]}, "task": )" + json + "}", key);
}

Malformed jobs(const std::string& json, const std::string& key) {
  return tf_config(R"({"cluster": )" + json + R"(, "task": {"type": "worker", "index": 0}})", key);
}

std::string addresses(int count) {
  std::string list;
  for (int i = 0; i < count; ++i) list += "\"a:" + std::to_string(i % 60'000 + 1) + "\",";
  return "[" + list + "\"b:1\"]";
}

TEST(MalformedInput, TfConfig) {
  expect_refused(
      {tf_config("", ""),
       tf_config(" ", ""),
       tf_config("{", ""),
       tf_config("}", ""),
       tf_config("nonsense", ""),
       tf_config("{} {}", ""),
       tf_config("[]", ""),
       tf_config("7", ""),
       tf_config("null", ""),
       tf_config("{'cluster': {}}", ""),
       tf_config("{\"a\": \"\xff\"}", ""),
       tf_config("\xEF\xBB\xBF{}", "byte order mark"),
       tf_config(R"({"a": 1,})", ""),
       tf_config(std::string(120'000, '['), "levels"),
       tf_config(std::string(120'000, '{'), ""),
       tf_config("\"" + std::string(120'000, 'x'), ""),
       tf_config("{\"a\": " + std::string(120'000, '9') + "x}", ""),
       tf_config(R"({"task": {}, "task": {}})", "twice"),
       tf_config(R"({"task": []})", "\"task\""),
       tf_config(R"({"task": "worker"})", "\"task\""),
       tf_config(R"({"task": {"type": []}})", "the task's type"),
       tf_config(R"({"task": {"index": "one"}})", "the task's index"),
       task("{}", "the task's type"),
       task(R"({"type": "worker"})", "the task's index"),
       task(R"({"index": 0})", "the task's type"),
       task(R"({"type": null})", "the task's type"),
       task(R"({"type": "worker", "index": -1})", "task_id -1"),
       task(R"({"type": "worker", "index": 2})", "task_id 2"),
       task(R"({"type": "worker", "index": 99999999999})", "the task's index"),
       task(R"({"type": "worker", "index": []})", "the task's index"),
       task(R"({"type": "worker", "index": "0x1"})", "the task's index"),
       task(R"({"type": "trainer", "index": 0})", "task_type 'trainer'"),
       task(R"({"type": ")" + kLong + R"(", "index": 0})", "task_type 'x"),
       jobs(R"({")" + kLong + R"(": 7})", "job 'x"),
       jobs(R"({"worker": [")" + kLong + R"(:1"]})", "worker 0"),
       task(R"({"type": "chief", "index": 0})", "task_type 'chief'"),
       task(R"({"type": "ps", "index": 0})", "type 'ps'"),
       jobs("[]", "\"cluster\""),
       jobs("null", "\"cluster\""),
       jobs("\"a:1\"", "\"cluster\""),
       jobs(R"({"worker": "a:1"})", "job 'worker'"),
       jobs(R"({"worker": 7})", "job 'worker'"),
       jobs(R"({"worker": [7]})", "worker 0"),
       jobs(R"({"worker": ["a:1", null]})", "worker 1"),
       jobs(R"({"worker": ["a"]})", "worker 0"),
       jobs(R"({"worker": ["a:1", "b:0"]})", "worker 1"),
       jobs(R"({"worker": ["a:99999"]})", "worker 0"),
       jobs(R"({"worker": [""]})", "worker 0"),
       jobs(R"({"worker": ["a:1", "a:1"]})", "worker 1"),
       jobs(R"({"worker": ["localhost:1", "b:1"]})", "worker 0"),
       jobs(R"({"worker": {"x": "a:1"}})", "job 'worker'"),
       jobs(R"({"worker": {"-1": "a:1"}})", "job 'worker'"),
       jobs(R"({"worker": {"1": "a:1", "01": "b:1"}})", "job 'worker'"),
       jobs(R"({"": ["a:1"]})", "a job has no name"),
       jobs("{}{", ""),
       jobs(R"({"chief": ["a:1", "b:1"], "worker": ["c:1"]})", "'chief'"),
       jobs(R"({"worker": )" + addresses(66'000) + "}", "job 'worker'"),
       tf_config(R"({"rpc_layer": 7, "cluster": {"worker": ["a:1"]}})", "\"rpc_layer\"")});
}

const Variables kTorchrun = {{"RANK", "1"},
                             {"WORLD_SIZE", "3"},
                             {"LOCAL_WORLD_SIZE", "3"},
                             {"MASTER_ADDR", "n0"},
                             {"MASTER_PORT", "29500"}};

TEST(MalformedInput, Torchrun) {
  expect_refused(joined(
      {each(kTorchrun, "RANK", kNoNumbers), each(kTorchrun, "RANK", {"3"}),
       each(kTorchrun, "WORLD_SIZE", kNoNumbers), each(kTorchrun, "WORLD_SIZE", {"0", "65537"}),
       each(kTorchrun, "LOCAL_WORLD_SIZE", kNoNumbers),
       each(kTorchrun, "LOCAL_WORLD_SIZE", {"0", "4"}), each(kTorchrun, "MASTER_PORT", kNoNumbers),
       each(kTorchrun, "MASTER_PORT", {"0", "65536"}),
       each(kTorchrun, "MASTER_ADDR", {"", " ", "n 0", "n0:1:x", "http://n0", "n0\n", kLong}),
       each(kTorchrun, "LOCKSTEP_MASTER",
            {"", "n0", "n0:0", "n0:99999", "n0:x", kLong, kLong + ":1"}),
       each(with(kTorchrun, {{"LOCAL_WORLD_SIZE", "2"}}), "MASTER_ADDR", {"localhost", "::1"}),
       missing(kTorchrun, {"MASTER_ADDR", "MASTER_PORT"})}));
}

const Variables kOpenMpi = {{"OMPI_COMM_WORLD_RANK", "1"},
                            {"OMPI_COMM_WORLD_SIZE", "2"},
                            {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}};
const Variables kMpich = {{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"MPI_LOCALNRANKS", "2"}};

TEST(MalformedInput, Mpi) {
  expect_refused(joined(
      {each(kOpenMpi, "OMPI_COMM_WORLD_RANK", kNoNumbers),
       each(kOpenMpi, "OMPI_COMM_WORLD_RANK", {"2"}),
       each(kOpenMpi, "OMPI_COMM_WORLD_SIZE", kNoNumbers),
       each(kOpenMpi, "OMPI_COMM_WORLD_SIZE", {"0", "65537"}),
       each(kOpenMpi, "OMPI_COMM_WORLD_LOCAL_SIZE", kNoNumbers),
       each(kOpenMpi, "OMPI_COMM_WORLD_LOCAL_SIZE", {"0", "3"}),
       each(kOpenMpi, "LOCKSTEP_MASTER", {"", "n0", "n0:0"}),
       each(kMpich, "PMI_RANK", kNoNumbers),
       each(kMpich, "PMI_SIZE", kNoNumbers),
       each(kMpich, "MPI_LOCALNRANKS", kNoNumbers),
       missing(kOpenMpi, {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"}),
       missing(kMpich, {"PMI_RANK", "PMI_SIZE"}),
       {started("two hosts, no master", with(kOpenMpi, {{"OMPI_COMM_WORLD_LOCAL_SIZE", "1"}}),
                "LOCKSTEP_MASTER")}}));
}

const Variables kSlurm = {{"SLURM_PROCID", "1"},
                          {"SLURM_STEP_NUM_TASKS", "4"},
                          {"SLURM_STEP_NODELIST", "n[1-2]"},
                          {"SLURM_STEP_TASKS_PER_NODE", "2(x2)"},
                          {"SLURM_STEP_NUM_NODES", "2"}};

TEST(MalformedInput, Slurm) {
  expect_refused(joined(
      {each(kSlurm, "SLURM_PROCID", kNoNumbers), each(kSlurm, "SLURM_PROCID", {"4"}),
       each(kSlurm, "SLURM_STEP_NUM_TASKS", kNoNumbers),
       each(kSlurm, "SLURM_STEP_NUM_TASKS", {"0", "3", "5", "65537"}),
       each(kSlurm, "SLURM_STEP_NUM_NODES", kNoNumbers),
       each(kSlurm, "SLURM_STEP_NUM_NODES", {"0", "1", "3"}),
       each(kSlurm, "SLURM_STEP_NODELIST",
            {"",
             ",",
             "n1,",
             ",n1",
             "n[",
             "n[1",
             "n[1-",
             "n[1-2",
             "n[]",
             "n[-]",
             "n[2-1]",
             "n[a-b]",
             "n]",
             "n[1-2]]",
             "n[1--2]",
             "n 1",
             "n[1-2],,m",
             "n[1-99999999]",
             "n[0-65536]",
             "n[1-99999999999999999999]",
             "n[1-9][1-9][1-9][1-9][1-9][1-9]",
             kLong,
             kLong + "[1-2]",
             "n[[1-2]]",
             "n[1,]",
             "n[,1]",
             "n[1-2]\n",
             "n1\xff",
             "n[1-3]",
             "n1",
             std::string(120'000, '['),
             "n[" + std::string(120'000, '1') + "]"}),
       each(kSlurm, "SLURM_STEP_TASKS_PER_NODE",
            {"",
             ",",
             "2,",
             ",2",
             "x",
             "0",
             "0(x2)",
             "-1",
             "2(",
             "2(x",
             "2(x2",
             "2(x0)",
             "2(y2)",
             "2()",
             "2(x99999999)",
             "99999999999(x2)",
             "2(x2))",
             "2 (x2)",
             "2(x2),",
             "2(x3)",
             std::string(120'000, '2')}),
       each(kSlurm, "SLURMD_NODENAME", {"n2", "other", "", kLong}),
       missing(kSlurm, {"SLURM_PROCID", "SLURM_STEP_NODELIST", "SLURM_STEP_TASKS_PER_NODE"})}));
}

Malformed pods(const std::string& text, const std::string& key) {
  return {"pods: " + text.substr(0, 60),
          [text] { (void)KubernetesResolver(PodList::of_text(text)).cluster_spec(); },
          {"pod list", key}};
}

/// One pod with the label of the default job, and this in place of some of it.
Malformed pod(const std::string& metadata, const std::string& status, const std::string& key) {
  return pods(R"({"items": [{"metadata": {)" + metadata + R"(}, "status": {)" + status + "}}]}",
              key);
}

const std::string kGood = R"("name": "a", "labels": {"job-name": "tensorflow"})";

TEST(MalformedInput, Kubernetes) {
  expect_refused(
      {pods("", "pod list, byte 0"),
       pods("{", "pod list, byte 1"),
       pods("nonsense", "pod list"),
       pods("[]", "the list of pods"),
       pods("null", "the list of pods"),
       pods("{}", "\"items\""),
       pods(R"({"kind": "Pod", "metadata": {"name": "a"}})", "\"kind\""),
       pods(R"({"kind": 7})", "\"kind\""),
       pods(R"({"items": null})", "\"items\""),
       pods(R"({"items": {}})", "\"items\""),
       pods(R"({"items": [], "items": []})", "twice"),
       pods(R"({"items": [7]})", "\"items[0]\""),
       pods(R"({"items": [{}]})", "\"items[0].metadata.name\""),
       pods(R"({"items": [{"metadata": []}]})", "\"items[0].metadata\""),
       pods(R"({"items": [{"metadata": {"name": "a"}, "status": "x"}]})", "\"items[0].status\""),
       pods(std::string(1'000'000, '['), "levels"),
       pods(std::string(1'000'000, '{'), "pod list"),
       pods("\"" + std::string(1'000'000, 'x'), "pod list"),
       pods(std::string(PodList::kMaxBytes + 1, ' '), "pod list"),
       pod(R"("name": 7)", "", "\"items[0].metadata.name\""),
       pod(R"("name": "")", "", "\"items[0].metadata.name\""),
       pod(R"("name": "a", "labels": [])", "", "\"items[0].metadata.labels\""),
       pod(R"("name": "a", "labels": {"x": 1})", "", "\"items[0].metadata.labels.x\""),
       pod(R"("name": "a", "labels": {")" + kLong + R"(": 1})", "", "\"items[0].metadata.labels.x"),
       pod(R"("labels": {"job-name": "tensorflow"}, "name": ")" + kLong + "\"", "",
           "is not Running"),
       pod(kGood, R"("phase": ")" + kLong + "\"", "is not Running"),
       pod(kGood, R"("phase": "Running", "hostIP": ")" + kLong + "\"", "hostIP"),
       pods(R"({"kind": ")" + kLong + R"("})", "\"kind\""),
       pod(kGood, "", "\"items[0].status.phase\""),
       pod(kGood, R"("phase": 7)", "\"items[0].status.phase\""),
       pod(kGood, R"("phase": "Failed", "hostIP": "10.0.0.1")", "pod a is not Running"),
       pod(kGood, R"("phase": "Running")", "\"items[0].status.hostIP\""),
       pod(kGood, R"("phase": "Running", "hostIP": 7)", "\"items[0].status.hostIP\""),
       pod(kGood, R"("phase": "Running", "hostIP": "a b")", "\"items[0].status.hostIP\""),
       pod(kGood, R"("phase": "Running", "hostIP": "1:2]:3")", "\"items[0].status.hostIP\"")});
}

TEST(MalformedInput, Files) {
  expect_refused(
      {Malformed{
           "no file",
           [] { (void)KubernetesResolver(PodList::in_file("/no/such/pods.json")).cluster_spec(); },
           {"/no/such/pods.json"}},
       Malformed{"a directory",
                 [] { (void)KubernetesResolver(PodList::in_file("/tmp")).cluster_spec(); },
                 {"/tmp"}}});
}

}  // namespace
}  // namespace lockstep
