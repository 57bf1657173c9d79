// The key that ranks prove to each other with, in a file that only its owner can read
// (transport/keys.h). Never on a command line, never in a message.
#pragma once

#include <string>

namespace lockstep::tool {

/// Makes a new key and the file for it, which must not exist.
void write_new_key(const std::string& path);

/// Throws UsageError that says what is wrong with the file or what is in it.
void check_key_file(const std::string& path);

/// A line for a shell that makes a key in the file "key".
inline constexpr const char* kMakeKey =
    "(umask 077; head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \\n' > key)";

}  // namespace lockstep::tool
