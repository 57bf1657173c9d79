#include "format/zip.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <span>
#include <utility>

#include "format/zip_stream.h"
#include "lockstep/error.h"

namespace lockstep::format {
namespace {

// Records of a zip file, by signature, and their lengths without the variable parts.
constexpr std::uint32_t kLocal = 0x04034b50;
constexpr std::size_t kLocalBytes = 30;
constexpr std::uint32_t kEntry = 0x02014b50;
constexpr std::size_t kEntryBytes = 46;
constexpr std::uint32_t kEnd = 0x06054b50;
constexpr std::size_t kEndBytes = 22;
constexpr std::uint32_t kEnd64 = 0x06064b50;
constexpr std::size_t kEnd64Bytes = 56;
constexpr std::uint32_t kLocator64 = 0x07064b50;
constexpr std::size_t kLocator64Bytes = 20;

constexpr std::size_t kMaxComment = 0xffff;
constexpr std::uint32_t kIn64 = 0xffffffff;  // the number is in the 64-bit field instead
constexpr std::uint16_t kExtra64 = 1;
constexpr std::uint16_t kEncrypted = 1;

[[noreturn]] void bad(const std::string& file, const std::string& what) {
  throw DataError(fmt::format("{}: {}", file, what));
}

/// A little-endian number of `bytes`, which holds it.
template <class T>
T get(std::span<const std::byte> bytes, std::size_t at) {
  T value;
  std::memcpy(&value, bytes.subspan(at, sizeof(T)).data(), sizeof(T));
  return value;
}

/// The numbers that did not fit into the entry, from its 64-bit extra field.
void widen(ZipMember& member, std::span<const std::byte> extra, const std::string& name) {
  std::uint64_t* const wide[] = {&member.bytes, &member.packed_bytes, &member.header_at};
  if (std::none_of(std::begin(wide), std::end(wide), [](auto* n) { return *n == kIn64; })) return;
  while (extra.size() >= 4) {
    const auto id = get<std::uint16_t>(extra, 0);
    const std::size_t length = get<std::uint16_t>(extra, 2);
    extra = extra.subspan(4);
    if (length > extra.size()) break;
    if (id != kExtra64) {
      extra = extra.subspan(length);
      continue;
    }
    auto field = extra.first(length);
    for (std::uint64_t* number : wide) {
      if (*number != kIn64) continue;
      if (field.size() < 8) bad(name, "its 64-bit sizes in the zip directory are cut off");
      *number = get<std::uint64_t>(field, 0);
      field = field.subspan(8);
    }
    return;
  }
  // Without the field the number is meant as it is.
}

}  // namespace

ZipReader::ZipReader(ReadAt read, std::uint64_t file_bytes, std::string file)
    : read_(std::move(read)), file_bytes_(file_bytes), file_(std::move(file)) {
  read_directory();
}

const ZipMember* ZipReader::find(std::string_view name) const noexcept {
  const auto found =
      std::find_if(members_.begin(), members_.end(), [&](auto& m) { return m.name == name; });
  return found == members_.end() ? nullptr : &*found;
}

std::string ZipReader::name_of(const ZipMember& member) const { return file_ + ":" + member.name; }

std::vector<std::byte> ZipReader::bytes_at(std::uint64_t offset, std::uint64_t count,
                                           std::string_view what) const {
  if (offset > file_bytes_ || count > file_bytes_ - offset) {
    bad(file_,
        fmt::format("{} at byte {} with {} bytes does not lie in the {} bytes of the archive", what,
                    offset, count, file_bytes_));
  }
  std::vector<std::byte> bytes(count);
  if (const std::size_t came = read_(offset, bytes); came != count) {
    bad(file_, fmt::format("the archive ends at byte {}, it had {}", offset + came, file_bytes_));
  }
  return bytes;
}

void ZipReader::read_directory() {
  // The end record is the last thing in the file but for a comment.
  const std::uint64_t tail = std::min<std::uint64_t>(file_bytes_, kEndBytes + kMaxComment);
  const std::uint64_t tail_at = file_bytes_ - tail;
  const auto bytes = bytes_at(tail_at, tail, "the end");
  std::size_t end = bytes.size();
  for (std::size_t at = bytes.size() < kEndBytes ? 0 : bytes.size() - kEndBytes + 1; at-- > 0;) {
    if (get<std::uint32_t>(bytes, at) == kEnd &&
        at + kEndBytes + get<std::uint16_t>(bytes, at + 20) == bytes.size()) {
      end = at;
      break;
    }
  }
  if (end == bytes.size()) {
    bad(file_, fmt::format("no zip archive, or one that is cut off: its {} bytes have no zip end "
                           "record",
                           file_bytes_));
  }
  const auto record = std::span(bytes).subspan(end);
  std::uint64_t count = get<std::uint16_t>(record, 10);
  std::uint64_t size = get<std::uint32_t>(record, 12);
  std::uint64_t start = get<std::uint32_t>(record, 16);
  const std::uint64_t end_at = tail_at + end;
  if (end_at >= kLocator64Bytes && (count == 0xffff || size == kIn64 || start == kIn64)) {
    const auto locator = bytes_at(end_at - kLocator64Bytes, kLocator64Bytes, "the zip64 locator");
    if (get<std::uint32_t>(locator, 0) == kLocator64) {
      const auto wide = bytes_at(get<std::uint64_t>(locator, 8), kEnd64Bytes, "the zip64 record");
      if (get<std::uint32_t>(wide, 0) != kEnd64) bad(file_, "the zip64 locator points nowhere");
      count = get<std::uint64_t>(wide, 32);
      size = get<std::uint64_t>(wide, 40);
      start = get<std::uint64_t>(wide, 48);
    }
  }

  const auto directory = bytes_at(start, size, "the zip directory");
  std::span<const std::byte> rest = directory;
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::uint64_t at = start + directory.size() - rest.size();
    if (rest.size() < kEntryBytes || get<std::uint32_t>(rest, 0) != kEntry) {
      bad(file_, fmt::format("the zip directory has no entry at byte {}, number {} of {}", at,
                             i + 1, count));
    }
    const std::size_t name = get<std::uint16_t>(rest, 28);
    const std::size_t extra = get<std::uint16_t>(rest, 30);
    const std::size_t comment = get<std::uint16_t>(rest, 32);
    if (rest.size() < kEntryBytes + name + extra + comment) {
      bad(file_, fmt::format("the zip directory is cut off in the entry at byte {}", at));
    }
    ZipMember member{
        .name = std::string(reinterpret_cast<const char*>(rest.data()) + kEntryBytes, name),
        .bytes = get<std::uint32_t>(rest, 24),
        .packed_bytes = get<std::uint32_t>(rest, 20),
        .header_at = get<std::uint32_t>(rest, 42),
        .crc = get<std::uint32_t>(rest, 16),
        .method = get<std::uint16_t>(rest, 10)};
    widen(member, rest.subspan(kEntryBytes + name, extra), name_of(member));
    if ((get<std::uint16_t>(rest, 8) & kEncrypted) != 0) {
      bad(name_of(member), "is encrypted, which is not read");
    }
    members_.push_back(std::move(member));
    rest = rest.subspan(kEntryBytes + name + extra + comment);
  }
}

ReadBytes ZipReader::open(const ZipMember& member) const {
  const std::string name = name_of(member);
  if (member.method != kZipStored && member.method != kZipDeflated) {
    bad(name, fmt::format("is packed with method {}; only stored (0) and deflated (8) members are "
                          "read",
                          member.method));
  }
  if (member.method == kZipStored && member.packed_bytes != member.bytes) {
    bad(name, fmt::format("is stored, but the zip directory says {} bytes for {}",
                          member.packed_bytes, member.bytes));
  }
  const auto local = bytes_at(member.header_at, kLocalBytes, name);
  if (get<std::uint32_t>(local, 0) != kLocal) {
    bad(name, fmt::format("the archive has no member at byte {}", member.header_at));
  }
  const std::uint64_t data_at = member.header_at + kLocalBytes + get<std::uint16_t>(local, 26) +
                                get<std::uint16_t>(local, 28);
  if (data_at > file_bytes_ || member.packed_bytes > file_bytes_ - data_at) {
    bad(name, fmt::format("its {} bytes at byte {} do not lie in the {} bytes of the archive",
                          member.packed_bytes, data_at, file_bytes_));
  }
  return zip_stream(read_, data_at, member, name);
}

}  // namespace lockstep::format
