#include "sys/os_error.h"

#include <fmt/format.h>

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
          fmt::format("{}: {} ({}){}{}", what, words != nullptr ? words : "unknown error",
                      name != nullptr ? name : std::to_string(error), advice.empty() ? "" : "; ",
                      advice)};
}

}  // namespace lockstep::sys
