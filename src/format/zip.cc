#include "format/zip.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <memory>
#include <span>
#include <utility>

#include "format/elements.h"
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
constexpr std::uint16_t kStored = 0;
constexpr std::uint16_t kDeflated = 8;
constexpr std::size_t kInputBlock = 64 * 1024;

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

/// The stream of one member.
class MemberStream {
 public:
  MemberStream(ReadAt read, std::uint64_t data_at, ZipMember member, std::string name)
      : read_(std::move(read)), at_(data_at), member_(std::move(member)), name_(std::move(name)) {
    if (member_.method != kDeflated) return;
    input_.resize(kInputBlock);
    // Minus: a zip member has no header of zlib's own.
    if (inflateInit2(&inflate_, -MAX_WBITS) != Z_OK) {
      throw SystemError(fmt::format("{}: no memory to unpack it", name_));
    }
    inflating_ = true;
  }
  ~MemberStream() {
    if (inflating_) inflateEnd(&inflate_);
  }
  MemberStream(const MemberStream&) = delete;
  MemberStream& operator=(const MemberStream&) = delete;

  std::size_t read(std::span<std::byte> into) {
    into = into.first(std::min<std::uint64_t>(into.size(), member_.bytes - given_));
    if (into.empty()) {
      if (given_ == member_.bytes) check_end();
      return 0;
    }
    const std::size_t came = inflating_ ? inflated(into) : stored(into);
    crc_ = crc32_z(crc_, reinterpret_cast<const Bytef*>(into.data()), came);
    given_ += came;
    if (given_ == member_.bytes) check_end();
    return came;
  }

 private:
  std::size_t stored(std::span<std::byte> into) {
    const std::size_t came = read_(at_, into);
    if (came == 0) cut_off();
    at_ += came;
    return came;
  }

  std::size_t inflated(std::span<std::byte> into) {
    inflate_.next_out = reinterpret_cast<Bytef*>(into.data());
    inflate_.avail_out = static_cast<uInt>(std::min<std::size_t>(into.size(), 1U << 30));
    const uInt room = inflate_.avail_out;
    while (inflate_.avail_out == room) {
      const int result = step();
      if (result == Z_STREAM_END && inflate_.avail_out == room) {
        bad(name_,
            fmt::format("unpacks to {} bytes, the zip directory says {}", given_, member_.bytes));
      }
    }
    return room - inflate_.avail_out;
  }

  /// One call of inflate, with input if there is any left.
  int step() {
    if (inflate_.avail_in == 0) {
      const auto block = std::span(input_).first(
          std::min<std::uint64_t>(input_.size(), member_.packed_bytes - taken_));
      const std::size_t came = block.empty() ? 0 : read_(at_, block);
      if (came < block.size()) cut_off();
      at_ += came;
      taken_ += came;
      inflate_.next_in = reinterpret_cast<Bytef*>(input_.data());
      inflate_.avail_in = static_cast<uInt>(came);
    }
    const int result = ::inflate(&inflate_, Z_NO_FLUSH);
    if (result == Z_BUF_ERROR && inflate_.avail_in == 0 && taken_ == member_.packed_bytes) {
      bad(name_, fmt::format("its {} packed bytes end within the data", member_.packed_bytes));
    }
    if (result != Z_OK && result != Z_STREAM_END && result != Z_BUF_ERROR) {
      bad(name_, fmt::format("damaged before byte {} of the archive: {}", at_ - inflate_.avail_in,
                             inflate_.msg == nullptr ? "cannot be unpacked" : inflate_.msg));
    }
    return result;
  }

  void check_end() {
    if (std::exchange(checked_, true)) return;
    if (inflating_) {
      std::byte more{};
      inflate_.next_out = reinterpret_cast<Bytef*>(&more);
      inflate_.avail_out = 1;
      while (step() != Z_STREAM_END) {
        if (inflate_.avail_out == 0) break;
      }
      if (inflate_.avail_out == 0) {
        bad(name_,
            fmt::format("unpacks to more than the {} bytes the zip directory says", member_.bytes));
      }
    }
    if (crc_ != member_.crc) {
      bad(name_, fmt::format("damaged: the CRC-32 of its {} bytes is {:08x}, the zip directory "
                             "says {:08x}",
                             member_.bytes, crc_, member_.crc));
    }
  }

  [[noreturn]] void cut_off() { bad(name_, fmt::format("the archive ends at byte {}", at_)); }

  ReadAt read_;
  std::uint64_t at_;  // next byte in the archive
  ZipMember member_;
  std::string name_;
  std::uint64_t given_ = 0;
  std::uint64_t taken_ = 0;  // packed bytes read
  std::uint32_t crc_ = 0;
  bool checked_ = false;
  bool inflating_ = false;
  z_stream inflate_{};
  std::vector<std::byte> input_;
};

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
  if (member.method != kStored && member.method != kDeflated) {
    bad(name, fmt::format("is packed with method {}; only stored (0) and deflated (8) members are "
                          "read",
                          member.method));
  }
  if (member.method == kStored && member.packed_bytes != member.bytes) {
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
  auto stream = std::make_shared<MemberStream>(read_, data_at, member, name);
  return [stream](std::span<std::byte> into) { return stream->read(into); };
}

}  // namespace lockstep::format
