#include "launch/signal_queue.h"

#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>

#include "sys/os_error.h"

namespace lockstep::tool {

SignalQueue::SignalQueue() {
  sigset_t wanted;
  ::sigemptyset(&wanted);
  for (const int signal : {SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2, SIGTSTP}) {
    struct sigaction action {};
    ::sigaction(signal, nullptr, &action);
    if (action.sa_handler != SIG_IGN) ::sigaddset(&wanted, signal);
  }
  ::pthread_sigmask(SIG_BLOCK, &wanted, &before_);
  descriptor_ = sys::Descriptor(::signalfd(-1, &wanted, SFD_NONBLOCK | SFD_CLOEXEC));
  if (!descriptor_.valid()) {
    const int error = errno;
    ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
    raise(sys::os_error("cannot wait for signals", error));
  }
}

SignalQueue::~SignalQueue() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

std::optional<int> SignalQueue::next() {
  signalfd_siginfo info{};
  const auto size =
      sys::retry_on_signal([&] { return ::read(descriptor_.get(), &info, sizeof info); });
  if (size != static_cast<ssize_t>(sizeof info)) return std::nullopt;
  return static_cast<int>(info.ssi_signo);
}

}  // namespace lockstep::tool
