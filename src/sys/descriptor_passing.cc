#include "sys/descriptor_passing.h"

#include <sys/socket.h>

#include <array>
#include <cstring>

#include "sys/os_error.h"
#include "sys/posix_socket.h"

namespace lockstep::sys {
namespace {

constexpr const char* kPassing = "cannot hand over a file to another process";

int socket_of(Connection& connection) {
  auto* posix = dynamic_cast<PosixConnection*>(&connection.underlying());
  if (posix == nullptr) throw InternalError("files can be handed over by Unix sockets only");
  return posix->fd();
}

/// A message of one byte with room for one descriptor.
struct Message {
  std::byte byte{};
  iovec data{.iov_base = &byte, .iov_len = 1};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> room{};
  msghdr header{};

  Message() {
    header.msg_iov = &data;
    header.msg_iovlen = 1;
    header.msg_control = room.data();
    header.msg_controllen = room.size();
  }
  Message(const Message&) = delete;
  Message& operator=(const Message&) = delete;
};

bool would_block(int error) { return error == EAGAIN || error == EWOULDBLOCK; }

}  // namespace

bool send_descriptor(Connection& connection, int descriptor) {
  Message message;
  cmsghdr* control = CMSG_FIRSTHDR(&message.header);
  control->cmsg_level = SOL_SOCKET;
  control->cmsg_type = SCM_RIGHTS;
  control->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(control), &descriptor, sizeof(int));
  const auto sent = retry_on_signal(
      [&] { return ::sendmsg(socket_of(connection), &message.header, MSG_NOSIGNAL); });
  if (sent == 1) return true;
  if (would_block(errno)) return false;
  raise(os_error(kPassing, errno));
}

std::optional<Descriptor> receive_descriptor(Connection& connection) {
  Message message;
  const auto received = retry_on_signal(
      [&] { return ::recvmsg(socket_of(connection), &message.header, MSG_CMSG_CLOEXEC); });
  if (received < 0 && would_block(errno)) return std::nullopt;
  if (received < 0) raise(os_error("cannot take a file from another process", errno));
  if (received == 0) raise(os_error("cannot take a file from another process", ECONNRESET));
  // The kernel drops a descriptor for which the process has no room.
  if ((message.header.msg_flags & MSG_CTRUNC) != 0) {
    raise(os_error("cannot take a file from another process", EMFILE));
  }
  const cmsghdr* control = CMSG_FIRSTHDR(&message.header);
  if (control == nullptr || control->cmsg_level != SOL_SOCKET || control->cmsg_type != SCM_RIGHTS ||
      control->cmsg_len != CMSG_LEN(sizeof(int))) {
    throw DataError("a peer was to hand over a file and sent something else");
  }
  int descriptor = -1;
  std::memcpy(&descriptor, CMSG_DATA(control), sizeof(int));
  return Descriptor(descriptor);
}

std::optional<PeerProcess> peer_process(Connection& connection) {
  const auto* posix = dynamic_cast<const PosixConnection*>(&connection.underlying());
  if (posix == nullptr) return std::nullopt;
  const auto credentials = peer_credentials(posix->fd());
  if (!credentials) return std::nullopt;
  return PeerProcess{credentials->pid, credentials->uid};
}

}  // namespace lockstep::sys
