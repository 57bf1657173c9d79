// A worker of a training job, as a process: joins as the environment says, trains and prints a
// digest of the weights. Its one argument is a list of words:
//
//   model=cnn optimizer=adam steps=20 replicas=2 sequential overlap|afterwards bucket=65536 tuned
//   fault=kill|stop|throw at=STEP worker=W      what worker W does in that step
//
// "fault at=TIME" is printed before the fault; a failure is one line as rank_program's, and exit
// code 3; an exception of the step function's own is "threw TYPE: TEXT", and exit code 4.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/torch.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <map>
#include <optional>
#include <sstream>

#include "tests/train/training_job.h"

namespace lockstep::training {
namespace {

class Words {
 public:
  explicit Words(const std::string& text) {
    std::istringstream stream(text);
    for (std::string word; stream >> word;) {
      const std::size_t equals = word.find('=');
      words_[word.substr(0, equals)] = equals == std::string::npos ? "" : word.substr(equals + 1);
    }
  }
  [[nodiscard]] bool has(const std::string& name) const { return words_.contains(name); }
  [[nodiscard]] std::string text(const std::string& name, const std::string& otherwise) const {
    const auto found = words_.find(name);
    return found == words_.end() ? otherwise : found->second;
  }
  [[nodiscard]] int number(const std::string& name, int otherwise) const {
    return has(name) ? std::stoi(text(name, "")) : otherwise;
  }

 private:
  std::map<std::string, std::string> words_;
};

std::int64_t now_us() {
  return std::chrono::duration_cast<std::chrono::microseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

void say(const std::string& line) {
  std::printf("%s\n", line.c_str());
  std::fflush(stdout);
}

void fail(const std::string& fault) {
  say(fmt::format("fault at={}", now_us()));
  if (fault == "kill") ::kill(::getpid(), SIGKILL);
  if (fault == "stop") ::kill(::getpid(), SIGSTOP);
  throw std::out_of_range("a step of mine went wrong");
}

void run(const Words& words) {
  if (words.has("tuned")) tune_process_memory();
  MultiWorkerOptions options;
  for (int i = 0; i < words.number("replicas", 1); ++i) {
    options.devices.emplace_back(fmt::format("CPU:{}", i));
  }
  options.replicas.seed = 7;
  if (words.has("sequential")) options.replicas.execution = Execution::sequential;
  MultiWorkerMirroredStrategy strategy(options);
  say(fmt::format("worker {} of {} by {}", strategy.worker_index(), strategy.num_workers(),
                  strategy.transport()));
  Job job;
  job.model = words.text("model", "mlp");
  job.optimizer = words.text("optimizer", "sgd");
  job.steps = words.number("steps", 100);
  if (words.has("overlap")) job.gradients.overlap = Overlap::always;
  if (words.has("afterwards")) job.gradients.overlap = Overlap::never;
  job.gradients.bucket_bytes = words.number("bucket", 0);
  const std::string fault = words.text("fault", "");
  const bool mine = words.number("worker", 0) == strategy.worker_index();
  const std::uint64_t digest = train(strategy, job, [&](ReplicaContext&, int step) {
    if (!fault.empty() && mine && step == words.number("at", 0)) fail(fault);
  });
  say(fmt::format("digest {:016x}", digest));
}

}  // namespace
}  // namespace lockstep::training

int main(int argc, char** argv) {
  using namespace lockstep;
  try {
    training::run(training::Words(argc > 1 ? argv[1] : ""));
    return 0;
  } catch (const Error& error) {
    std::string message = error.what();
    for (char& c : message) c = c == '\n' ? ' ' : c;
    training::say(fmt::format("failed {} culprits={} code={} at={} {}", to_string(error.kind()),
                              fmt::join(error.culprits(), ","), to_string(error.code()),
                              training::now_us(), message));
    training::say("closed after 0");
    return 3;
  } catch (const std::out_of_range& error) {
    training::say(fmt::format("threw out_of_range: {}", error.what()));
    return 4;
  } catch (const std::exception& error) {
    training::say(fmt::format("threw something else: {}", error.what()));
    return 5;
  }
}
