// ZipReader: the members of a zip archive, which is what numpy.savez writes: an .npz is a zip of
// .npy files, stored as they are or deflated.
//
//   ZipReader archive(read_at, file_bytes, "data.npz");
//   for (const ZipMember& member : archive.members()) {
//     NpyReader array(archive.open(member), archive.name_of(member), member.bytes);
//   }
//
// Sizes are taken from the directory at the archive's end, and each is checked against the file
// before it is used. The stream of a member gives `bytes` bytes and compares their CRC-32 with the
// last of them; it never gives more than the directory says, whatever the packed bytes unpack to.
// Errors are DataErrors with the file, the member and the byte.
//
// Ownership: a stream keeps a copy of the ReadAt, not of the reader. Thread rule: one thread a
// stream, and as many streams as the ReadAt allows.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "format/read_bytes.h"

namespace lockstep::format {

/// Methods of a member that can be read.
inline constexpr std::uint16_t kZipStored = 0;
inline constexpr std::uint16_t kZipDeflated = 8;

struct ZipMember {
  std::string name;
  std::uint64_t bytes = 0;         // unpacked
  std::uint64_t packed_bytes = 0;  // in the archive
  std::uint64_t header_at = 0;     // byte in the archive
  std::uint32_t crc = 0;
  std::uint16_t method = 0;
};

class ZipReader {
 public:
  /// Reads the directory.
  ZipReader(ReadAt read, std::uint64_t file_bytes, std::string file);

  /// In the order of the directory.
  [[nodiscard]] const std::vector<ZipMember>& members() const noexcept { return members_; }
  /// Null if the archive has none of that name.
  [[nodiscard]] const ZipMember* find(std::string_view name) const noexcept;

  [[nodiscard]] ReadBytes open(const ZipMember& member) const;
  /// For messages: archive and member.
  [[nodiscard]] std::string name_of(const ZipMember& member) const;

 private:
  [[nodiscard]] std::vector<std::byte> bytes_at(std::uint64_t offset, std::uint64_t count,
                                                std::string_view what) const;
  void read_directory();

  ReadAt read_;
  std::uint64_t file_bytes_;
  std::string file_;
  std::vector<ZipMember> members_;
};

}  // namespace lockstep::format
