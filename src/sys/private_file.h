// Files that hold a secret: read only if nobody else could have read or written them.
#pragma once

#include <sys/stat.h>

#include <cstddef>
#include <span>
#include <string>

namespace lockstep::sys {

/// Reads the whole file and returns its size. The file must be a regular one, owned by this user or
/// root, of mode 0600 or narrower (root's also 0440), and fit into `into`. Only this user and root may
/// be able to change a link that leads to it. ConfigError otherwise, which names the file, what is wrong and the command that mends
/// it, and nothing of the content.
std::size_t read_private_file(const std::string& path, std::span<std::byte> into);

/// What read_private_file() asks of kind, owner and mode; apart, since only root can make a file
/// that belongs to somebody else.
void check_private(const std::string& path, const struct stat& file);

}  // namespace lockstep::sys
