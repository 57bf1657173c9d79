#include "tests/tools/launch/launched.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <fstream>

#include "launch/rank_environment.h"
#include "sys/posix_proc.h"

namespace lockstep::tool {
namespace {

void read_into(sys::Descriptor& from, std::string& text) {
  char part[65'536];
  const ssize_t size = ::read(from.get(), part, sizeof part);
  if (size > 0) {
    text.append(part, static_cast<std::size_t>(size));
  } else if (size == 0 || errno != EAGAIN) {
    from = {};
  }
}

}  // namespace

Launched::Launched(std::vector<std::string> arguments, std::vector<std::string> more) {
  std::vector<std::string> argv = {LOCKSTEP_COMMAND, "launch"};
  argv.insert(argv.end(), arguments.begin(), arguments.end());
  std::vector<std::string> environment = own_environment();
  environment.insert(environment.end(), more.begin(), more.end());
  process_ = sys::PosixProcesses().spawn({.argv = std::move(argv),
                                          .environment = std::move(environment),
                                          .output = sys::Command::Output::pipe});
  output_ = process_->take_output();
  errors_ = process_->take_errors();
}

void Launched::signal(sys::Signal signal) { EXPECT_TRUE(process_->signal(signal).ok()); }

bool Launched::read_some(int milliseconds) {
  if (!output_.valid() && !errors_.valid()) return false;
  pollfd ready[] = {{.fd = output_.get(), .events = POLLIN, .revents = 0},
                    {.fd = errors_.get(), .events = POLLIN, .revents = 0}};
  ::poll(ready, 2, milliseconds);
  if (ready[0].revents != 0) read_into(output_, out_);
  if (ready[1].revents != 0) read_into(errors_, err_);
  return true;
}

void Launched::wait_for(const std::string& text) {
  const Deadline deadline = Deadline::after(kLongest);
  while ((out_ + err_).find(text) == std::string::npos) {
    ASSERT_FALSE(deadline.passed()) << "no \"" << text << "\" in\n" << out_ << err_;
    ASSERT_TRUE(read_some(100)) << "no \"" << text << "\" in\n" << out_ << err_;
  }
}

Finished Launched::finish() {
  const Deadline deadline = Deadline::after(kLongest);
  while (!deadline.passed() && read_some(100)) {
  }
  return {.status = end_by(deadline), .out = out_, .err = err_};
}

sys::ExitStatus Launched::end_by(Deadline deadline) {
  const auto status = process_->wait(deadline);
  EXPECT_TRUE(status.has_value()) << "it does not end\n" << out_ << err_;
  return status.value_or(sys::ExitStatus{.how = sys::ExitStatus::How::unknown, .value = 0});
}

Finished launch_command(std::vector<std::string> arguments, std::vector<std::string> more) {
  return Launched(std::move(arguments), std::move(more)).finish();
}

std::vector<std::string> ranks_of(int n, const std::string& script,
                                  std::vector<std::string> options) {
  std::vector<std::string> words = {"-n", std::to_string(n)};
  words.insert(words.end(), options.begin(), options.end());
  words.insert(words.end(), {"--", "/bin/sh", "-c", script});
  return words;
}

bool gone(int pid) {
  const Deadline deadline = Deadline::after(std::chrono::seconds(20));
  // What was orphaned may stay a zombie until the machine's first process gets round to it.
  for (;;) {
    std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
    std::string text;
    if (!std::getline(file, text)) return true;
    const auto name_end = text.rfind(") ");
    if (name_end != std::string::npos && text[name_end + 2] == 'Z') return true;
    if (deadline.passed()) return false;
    ::poll(nullptr, 0, 10);
  }
}

}  // namespace lockstep::tool
