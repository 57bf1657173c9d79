#include "format/zip_stream.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "lockstep/error.h"

namespace lockstep::format {
namespace {

constexpr std::size_t kInputBlock = std::size_t{64} << 10;

[[noreturn]] void bad(const std::string& file, const std::string& what) {
  throw DataError(fmt::format("{}: {}", file, what));
}

class MemberStream {
 public:
  MemberStream(ReadAt read, std::uint64_t data_at, ZipMember member, std::string name)
      : read_(std::move(read)), at_(data_at), member_(std::move(member)), name_(std::move(name)) {
    if (member_.method != kZipDeflated) return;
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

ReadBytes zip_stream(ReadAt read, std::uint64_t data_at, ZipMember member, std::string name) {
  // Shared, because a std::function has to be copyable.
  auto stream =
      std::make_shared<MemberStream>(std::move(read), data_at, std::move(member), std::move(name));
  return [stream](std::span<std::byte> into) { return stream->read(into); };
}

}  // namespace lockstep::format
