// Compression: how a data file is packed.
#pragma once

namespace lockstep {

enum class Compression {
  automatic,  // reading only: told from the first bytes
  none,
  gzip,  // RFC 1952, several members in a row are one stream
  zlib,  // RFC 1950
};

}  // namespace lockstep
