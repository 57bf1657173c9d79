#include "sim/process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <utility>

#include "sys/os_error.h"

namespace lockstep::sim {
namespace {

using sys::ExitStatus;
using sys::Signal;

constexpr Duration kSlowestSignal = std::chrono::microseconds(100);
constexpr Duration kSlowestStart = std::chrono::milliseconds(2);

int number_of(Signal signal) {
  switch (signal) {
    case Signal::hangup:
      return SIGHUP;
    case Signal::interrupt:
      return SIGINT;
    case Signal::terminate:
      return SIGTERM;
    case Signal::kill:
    case Signal::stop:
    case Signal::resume:
      return SIGKILL;
    case Signal::user1:
      return SIGUSR1;
    case Signal::user2:
      return SIGUSR2;
  }
  return SIGKILL;
}

class Handle final : public sys::Process {
 public:
  Handle(World& world, Running& running) : world_(world), running_(running) {}
  ~Handle() override {
    if (!running_.status()) running_.receive(Signal::kill);
  }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;

  [[nodiscard]] int pid() const noexcept override { return running_.pid(); }

  Status signal(Signal which) override {
    if (running_.status()) {
      return sys::os_error(
          fmt::format("cannot signal process {} with {}", pid(), sys::to_string(which)), ESRCH);
    }
    running_.receive(which);
    return {};
  }

  std::optional<ExitStatus> poll() override { return running_.status(); }

  std::optional<ExitStatus> wait(Deadline deadline) override {
    world_.run_until([this] { return running_.status().has_value(); }, deadline);
    return running_.status();
  }

  [[nodiscard]] int end_descriptor() override { return running_.end_descriptor(); }
  [[nodiscard]] sys::Descriptor take_output() override { return running_.take_output(); }
  [[nodiscard]] sys::Descriptor take_errors() override { return running_.take_errors(); }

 private:
  World& world_;
  Running& running_;
};

}  // namespace

Running::Running(World& world, int pid, sys::Command command)
    : world_(world), pid_(pid), command_(std::move(command)) {
  if (command_.output != sys::Command::Output::pipe) return;
  output_ = open_pipe();
  errors_ = open_pipe();
}

Running::Pipe Running::open_pipe() {
  int ends[2] = {-1, -1};
  if (::pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) raise(sys::os_error("cannot make a pipe", errno));
  return {.reads = sys::Descriptor(ends[0]), .writes = sys::Descriptor(ends[1])};
}

void Running::write(const Pipe& pipe, std::string_view text) {
  // The reader may be gone; that must not raise SIGPIPE in the simulation.
  if (!pipe.writes.valid()) return;
  pollfd reader{.fd = pipe.writes.get(), .events = POLLOUT, .revents = 0};
  if (::poll(&reader, 1, 0) != 1 || (reader.revents & POLLERR) != 0) return;
  if (::write(pipe.writes.get(), text.data(), text.size()) < 0) return;
}

int Running::end_descriptor() {
  if (!ended_.valid()) {
    ended_ = sys::Descriptor(::eventfd(status_ ? 1 : 0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!ended_.valid()) raise(sys::os_error("cannot make an eventfd", errno));
  }
  return ended_.get();
}

void Running::after(Duration wait, std::function<void()> act) {
  world_.schedule_after(wait, [this, act = std::move(act)] { act_or_defer(act); });
}

void Running::act_or_defer(const std::function<void()>& act) {
  if (status_) return;
  if (stopped_) {
    deferred_.push_back(act);
  } else {
    act();
  }
}

void Running::exit(int value) { end({.how = ExitStatus::How::exited, .value = value & 0xFF}); }

void Running::on_signal(Signal which, std::function<void()> act) {
  handlers_[which] = std::move(act);
}

void Running::receive(Signal which) {
  world_.schedule_after(world_.random().up_to(kSlowestSignal), [this, which] { deliver(which); });
}

void Running::deliver(Signal which) {
  if (status_) return;
  switch (which) {
    case Signal::kill:
      return end({.how = ExitStatus::How::signalled, .value = SIGKILL});
    case Signal::stop:
      stopped_ = true;
      return;
    case Signal::resume:
      stopped_ = false;
      for (auto& act : std::exchange(deferred_, {})) act_or_defer(act);
      return;
    case Signal::hangup:
    case Signal::interrupt:
    case Signal::terminate:
    case Signal::user1:
    case Signal::user2:
      break;
  }
  act_or_defer([this, which] {
    if (const auto handler = handlers_.find(which); handler != handlers_.end()) {
      handler->second();
    } else {
      end({.how = ExitStatus::How::signalled, .value = number_of(which)});
    }
  });
}

void Running::end(ExitStatus status) {
  if (status_) return;
  status_ = status;
  deferred_.clear();
  output_.writes = {};
  errors_.writes = {};
  if (ended_.valid()) ::eventfd_write(ended_.get(), 1);
  world_.note(static_cast<std::uint64_t>(pid_) << 16 | static_cast<std::uint64_t>(status.value));
  for (const auto& act : std::exchange(on_end_, {})) act();
}

void Processes::install(const std::string& path, Program program) {
  programs_[path] = std::move(program);
}

std::unique_ptr<sys::Process> Processes::spawn(const sys::Command& command) {
  if (command.argv.empty()) throw InvalidUsage("a command needs a program: argv is empty");
  const auto program = programs_.find(command.argv.front());
  if (program == programs_.end()) {
    raise(sys::os_error(fmt::format("cannot start {}", command.to_string()), ENOENT));
  }
  const int pid = kFirstPid + static_cast<int>(running_.size());
  Running& running = *running_.emplace_back(std::make_unique<Running>(world_, pid, command));
  running.after(world_.random().up_to(kSlowestStart),
                [&running, start = program->second] { start(running); });
  return std::make_unique<Handle>(world_, running);
}

Running* Processes::find(int pid) noexcept {
  const int index = pid - kFirstPid;
  if (index < 0 || index >= static_cast<int>(running_.size())) return nullptr;
  return running_[static_cast<std::size_t>(index)].get();
}

}  // namespace lockstep::sim
