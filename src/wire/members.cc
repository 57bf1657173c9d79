#include "wire/members.h"

#include <algorithm>
#include <utility>

#include "wire/frame.h"

namespace lockstep::wire {
namespace {

using Row = std::array<std::byte, sizeof(Hello)>;

/// Fewer equal bytes than this do not end a piece: the next one would cost as much.
constexpr std::size_t kGap = 3;
constexpr std::size_t kMostOfPiece = 255;

/// Where the rows begin to differ, from that byte on.
std::size_t differs_at(const Row& row, const Row& before, std::size_t from) {
  const auto at = static_cast<std::ptrdiff_t>(from);
  return static_cast<std::size_t>(
      std::mismatch(row.begin() + at, row.end(), before.begin() + at).first - row.begin());
}

/// The end of the piece that begins there.
std::size_t end_of_piece(const Row& row, const Row& before, std::size_t begin) {
  const std::size_t limit = std::min(row.size(), begin + kMostOfPiece);
  std::size_t end = begin + 1;
  for (std::size_t next = end; next < limit && next - end < kGap; ++next) {
    if (row[next] != before[next]) end = next + 1;
  }
  return end;
}

void append(std::vector<std::byte>& bytes, const Row& row, const Row& before) {
  const std::size_t count_at = bytes.size();
  bytes.push_back(std::byte{0});
  std::size_t pieces = 0;
  std::size_t at = 0;
  for (std::size_t begin = differs_at(row, before, at); begin < row.size();
       begin = differs_at(row, before, at)) {
    const std::size_t equal = std::min(begin - at, kMostOfPiece);
    at += equal;
    // What is further away than a byte can say takes a piece without content.
    const std::size_t end = at == begin ? end_of_piece(row, before, begin) : at;
    bytes.push_back(static_cast<std::byte>(equal));
    bytes.push_back(static_cast<std::byte>(end - at));
    bytes.insert(bytes.end(), row.begin() + static_cast<std::ptrdiff_t>(at),
                 row.begin() + static_cast<std::ptrdiff_t>(end));
    at = end;
    ++pieces;
  }
  bytes[count_at] = static_cast<std::byte>(pieces);
}

Status bad(const char* what) {
  return {ErrorKind::data_error, Code::data_loss, std::string("unreadable roster: ") + what};
}

}  // namespace

std::vector<std::vector<std::byte>> encode_members(std::span<const Hello> members) {
  std::vector<std::vector<std::byte>> payloads;
  Row before{};
  std::vector<std::byte> bytes;
  for (const Hello& member : members) {
    const Row row = encode(member);
    bytes.clear();
    append(bytes, row, before);
    before = row;
    if (payloads.empty() || payloads.back().size() + bytes.size() > kMaxControlPayload) {
      payloads.emplace_back();
    }
    payloads.back().insert(payloads.back().end(), bytes.begin(), bytes.end());
  }
  return payloads;
}

Status Members::take(std::span<const std::byte> payload) {
  const auto next = [&] {
    const auto value = static_cast<std::size_t>(payload.front());
    payload = payload.subspan(1);
    return value;
  };
  while (!payload.empty()) {
    if (rows_.size() == most_) return bad("it has more rows than there are ranks");
    std::size_t at = 0;
    for (std::size_t pieces = next(); pieces > 0; --pieces) {
      if (payload.size() < 2) return bad("a row is cut off");
      at += next();
      const std::size_t size = next();
      if (size > payload.size()) return bad("a row is cut off");
      if (at + size > last_.size()) return bad("a row is too long");
      std::copy_n(payload.begin(), size, last_.begin() + static_cast<std::ptrdiff_t>(at));
      payload = payload.subspan(size);
      at += size;
    }
    Hello member;
    if (Status readable = decode(last_, member); !readable.ok()) return readable;
    rows_.push_back(member);
  }
  return {};
}

}  // namespace lockstep::wire
