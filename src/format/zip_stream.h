// The bytes of one member of a zip archive, unpacked and checked; ZipReader::open() gives it out.
#pragma once

#include <cstdint>
#include <string>

#include "format/read_bytes.h"
#include "format/zip.h"

namespace lockstep::format {

/// The member's packed bytes begin at `data_at`; its method is stored or deflated. `name` is for
/// messages.
ReadBytes zip_stream(ReadAt read, std::uint64_t data_at, ZipMember member, std::string name);

}  // namespace lockstep::format
