#include "sys/os_error.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstring>

namespace lockstep::sys {
namespace {

struct Explanation {
  int error;
  Code code;
  std::string_view advice;
};

constexpr Explanation kKnown[] = {
    {EADDRINUSE, Code::already_exists,
     "another process has it: choose another address or stop that process"},
    {EADDRNOTAVAIL, Code::invalid_argument, "it is not an address of this host"},
    {EACCES, Code::permission_denied, "check the permissions"},
    {EPERM, Code::permission_denied, "check the permissions"},
    {EROFS, Code::permission_denied, "the file system is read-only"},
    {ENOENT, Code::not_found, "check that it exists"},
    {ESRCH, Code::not_found, "the process has ended"},
    {EEXIST, Code::already_exists, "remove it or choose another name"},
    {ENOTDIR, Code::failed_precondition, "a part of the path is not a directory"},
    {EISDIR, Code::failed_precondition, "it is a directory"},
    {ENOTEMPTY, Code::failed_precondition, "the directory is not empty"},
    {ENAMETOOLONG, Code::invalid_argument, "shorten the path"},
    {ENOEXEC, Code::invalid_argument, "it is not a program for this machine"},
    {E2BIG, Code::invalid_argument, "shorten the arguments or the environment"},
    {ECONNREFUSED, Code::unavailable, "nobody listens there: check address and port"},
    {ECONNRESET, Code::unavailable, "the peer ended or refused to go on: see its log"},
    {EPIPE, Code::unavailable, "the peer ended or refused to go on: see its log"},
    {ENETUNREACH, Code::unavailable, "check the network and the address"},
    {EHOSTUNREACH, Code::unavailable, "check the network and the address"},
    {ETIMEDOUT, Code::deadline_exceeded, "no answer: check the network, the host and firewalls"},
    {EMFILE, Code::resource_exhausted, "raise the limit of open files (ulimit -n)"},
    {ENFILE, Code::resource_exhausted, "the host has too many open files (fs.file-max)"},
    {EAGAIN, Code::resource_exhausted,
     "the limit of processes (ulimit -u, pids cgroup) may be reached"},
    {ENOMEM, Code::resource_exhausted, "free some memory"},
    {ENOBUFS, Code::resource_exhausted, "free some memory"},
    {ENOSPC, Code::resource_exhausted, "free some space or choose another disk"},
    {EDQUOT, Code::resource_exhausted, "the quota is used up: free some space"},
    {EFBIG, Code::resource_exhausted, "raise the limit of file sizes (ulimit -f)"},
    {EIO, Code::data_loss, "the device may be failing: see the kernel's log"},
};

std::string limit_text(rlim_t limit) {
  return limit == RLIM_INFINITY ? "unlimited" : fmt::format("{}", limit);
}

/// Asked one by one: to read /proc would take a descriptor.
rlim_t open_files(rlim_t limit) {
  constexpr rlim_t kMost = 1 << 20;
  rlim_t open = 0;
  for (rlim_t fd = 0; fd < std::min(limit, kMost); ++fd)
    open += ::fcntl(static_cast<int>(fd), F_GETFD) != -1;
  return open;
}

/// The limit behind an error and how much of it is used, as far as this process can tell.
std::string usage(int error) {
  rlimit limit{};
  if (error == EMFILE && ::getrlimit(RLIMIT_NOFILE, &limit) == 0) {
    return fmt::format(": it is {}, and {} are open", limit_text(limit.rlim_cur),
                       open_files(limit.rlim_cur));
  }
  if (error == EFBIG && ::getrlimit(RLIMIT_FSIZE, &limit) == 0) {
    return fmt::format(": it is {} bytes", limit_text(limit.rlim_cur));
  }
  if (error == EAGAIN && ::getrlimit(RLIMIT_NPROC, &limit) == 0) {
    return fmt::format(": ulimit -u is {}", limit_text(limit.rlim_cur));
  }
  return {};
}

}  // namespace

Status os_error(std::string_view what, int error) {
  const char* words = strerrordesc_np(error);
  const char* name = strerrorname_np(error);
  Code code = Code::unknown;
  std::string_view advice;
  for (const Explanation& known : kKnown) {
    if (known.error == error) {
      code = known.code;
      advice = known.advice;
    }
  }
  return {ErrorKind::system_error, code,
          fmt::format("{}: {} ({}){}{}{}", what, words != nullptr ? words : "unknown error",
                      name != nullptr ? name : std::to_string(error), advice.empty() ? "" : "; ",
                      advice, usage(error))};
}

}  // namespace lockstep::sys
