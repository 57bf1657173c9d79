#include "format/npy_header.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <string_view>
#include <utility>

#include "format/elements.h"
#include "lockstep/error.h"

namespace lockstep::format {
namespace {

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr std::size_t kAlignment = 64;
constexpr std::size_t kVersionAt = 6;
constexpr std::size_t kLengthAt = 8;
constexpr std::size_t kShortPrefix = 10;  // magic, version and a length of 2 bytes (version 1)
constexpr std::size_t kLongPrefix = kNpyPrefixBytes;  // the same with 4 bytes (versions 2, 3)

struct Descr {
  std::string_view name;  // without the byte order
  DType type;
};
constexpr Descr kTypes[] = {
    {"f8", DType::float64},   {"f4", DType::float32},    {"f2", DType::float16},
    {"i1", DType::int8},      {"i2", DType::int16},      {"i4", DType::int32},
    {"i8", DType::int64},     {"u1", DType::uint8},      {"b1", DType::boolean},
    {"c8", DType::complex64}, {"c16", DType::complex128}};

[[noreturn]] void bad(const std::string& file, const std::string& what) {
  throw DataError(fmt::format("{}: {}", file, what));
}

std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::size_t little_endian(std::span<const std::byte> bytes) {
  std::size_t value = 0;
  for (std::size_t i = bytes.size(); i-- > 0;) {
    value = value << 8 | std::to_integer<std::size_t>(bytes[i]);
  }
  return value;
}

/// Where the header's text begins and ends.
struct Extent {
  std::size_t begin;
  std::size_t end;
};

/// From the first kLongPrefix bytes, fewer if the file has no more.
Extent extent_of(std::span<const std::byte> prefix, const std::string& file) {
  const std::string_view text = text_of(prefix);
  if (text.substr(0, kMagic.size()) != kMagic.substr(0, std::min(text.size(), kMagic.size()))) {
    bad(file, "no .npy file: it does not begin with \\x93NUMPY");
  }
  if (prefix.size() < kShortPrefix) {
    bad(file, fmt::format("cut off in the .npy header, at byte {}", prefix.size()));
  }
  const auto major = std::to_integer<int>(prefix[kVersionAt]);
  if (major < 1 || major > 3) {
    bad(file,
        fmt::format("version {} of .npy (byte {}) is not known, only 1 to 3", major, kVersionAt));
  }
  const std::size_t begin = major == 1 ? kShortPrefix : kLongPrefix;
  if (prefix.size() < begin) {
    bad(file, fmt::format("cut off in the .npy header, at byte {}", prefix.size()));
  }
  const std::size_t length = little_endian(prefix.subspan(kLengthAt, begin - kLengthAt));
  if (length > kNpyMaxHeaderBytes) {
    bad(file, fmt::format("a .npy header of {} bytes (byte {}); more than {} are refused", length,
                          kLengthAt, kNpyMaxHeaderBytes));
  }
  return {.begin = begin, .end = begin + length};
}

/// The header's text: a Python dictionary with three keys.
class HeaderText {
 public:
  HeaderText(std::string_view text, std::size_t offset, const std::string& file)
      : text_(text), offset_(offset), file_(file) {}

  void parse(NpyHeader& into) {
    expect('{');
    bool seen[3] = {};
    while (!take('}')) {
      const std::string_view key = quoted("a key");
      expect(':');
      const auto* const known = std::find(std::begin(kKeys), std::end(kKeys), key);
      if (known == std::end(kKeys)) fail(fmt::format("the key '{}' is not known", key));
      const auto which = static_cast<std::size_t>(known - std::begin(kKeys));
      if (std::exchange(seen[which], true)) fail(fmt::format("the key '{}' is there twice", key));
      if (which == 0) descr(into);
      if (which == 1) into.array_order = boolean() ? ArrayOrder::fortran : ArrayOrder::c;
      if (which == 2) shape(into);
      if (!take(',') && peek() != '}') fail("expected , or }");
    }
    for (std::size_t i = 0; i < 3; ++i) {
      if (!seen[i]) fail(fmt::format("the key '{}' is absent", kKeys[i]));
    }
    skip_blanks();
    if (at_ != text_.size()) fail("something follows the dictionary");
  }

 private:
  static constexpr std::string_view kKeys[] = {"descr", "fortran_order", "shape"};

  [[noreturn]] void fail(const std::string& what) const {
    bad(file_, fmt::format("unreadable .npy header at byte {}: {}", offset_ + at_, what));
  }

  void skip_blanks() {
    while (at_ < text_.size() && std::string_view(" \t\r\n").find(text_[at_]) != text_.npos) ++at_;
  }

  char peek() {
    skip_blanks();
    return at_ < text_.size() ? text_[at_] : '\0';
  }

  bool take(char c) {
    if (peek() != c || at_ == text_.size()) return false;
    ++at_;
    return true;
  }

  void expect(char c) {
    if (!take(c)) fail(fmt::format("expected {}", c));
  }

  std::string_view quoted(std::string_view what) {
    const char quote = peek();
    if (quote != '\'' && quote != '"') fail(fmt::format("expected {} in quotes", what));
    const std::size_t end = text_.find(quote, at_ + 1);
    if (end == text_.npos) fail("a quote is not closed");
    const std::string_view inside = text_.substr(at_ + 1, end - at_ - 1);
    at_ = end + 1;
    return inside;
  }

  bool boolean() {
    skip_blanks();
    for (const bool value : {true, false}) {
      const std::string_view word = value ? "True" : "False";
      if (text_.substr(at_, word.size()) != word) continue;
      at_ += word.size();
      return value;
    }
    fail("'fortran_order' is neither True nor False");
  }

  void descr(NpyHeader& into) {
    if (peek() == '[') {
      fail("'descr' is a record of several fields; save each of them as an array of its own");
    }
    const std::string_view name = quoted("'descr'");
    const char order = name.empty() ? '\0' : name.front();
    const std::string_view code = name.substr(name.empty() ? 0 : 1);
    if (code.substr(0, 1) == "O") {
      fail("'descr' is '" + std::string(name) +
           "': Python objects, which are not read; save numbers, e.g. array.astype('f4')");
    }
    if (code == "u2" || code == "u4" || code == "u8") {
      fail(fmt::format("'descr' is '{}', for which tensors have no type; save array.astype('{}')",
                       name, code == "u2" ? "i4" : "i8"));
    }
    const auto* const known = std::find_if(std::begin(kTypes), std::end(kTypes),
                                           [&](const Descr& t) { return t.name == code; });
    const bool one_byte = code == "i1" || code == "u1" || code == "b1";
    if (known == std::end(kTypes) ||
        std::string_view("<>=|").find(order) == std::string_view::npos ||
        (order == '|' && !one_byte)) {
      fail(fmt::format("'descr' is '{}', which is no type of numbers that is read here", name));
    }
    into.type = known->type;
    into.byte_order = order == '>' ? ByteOrder::big : ByteOrder::little;
  }

  void shape(NpyHeader& into) {
    expect('(');
    while (!take(')')) {
      skip_blanks();
      std::int64_t dim = 0;
      const char* const begin = text_.data() + at_;
      const auto [end, error] = std::from_chars(begin, text_.data() + text_.size(), dim);
      if (error != std::errc() || dim < 0) fail("'shape' has a dimension that is no number");
      at_ += static_cast<std::size_t>(end - begin);
      if (at_ < text_.size() && text_[at_] == 'L') ++at_;  // as Python 2 wrote it
      into.shape.push_back(dim);
      if (!take(',') && peek() != ')') fail("expected , or ) in 'shape'");
    }
    if (!bytes_of_shape(into.shape, sizeof(std::complex<double>))) {
      fail(fmt::format("no file holds the 'shape' {}", into.shape));
    }
  }

  std::string_view text_;
  std::size_t offset_;  // of the text in the file
  const std::string& file_;
  std::size_t at_ = 0;
};

}  // namespace

std::uint64_t NpyHeader::payload_bytes() const noexcept {
  // The header has been checked, so the product fits.
  return bytes_of_shape(shape, size_of(type)).value_or(0);
}

std::size_t npy_header_bytes(std::span<const std::byte> prefix, const std::string& file) {
  return extent_of(prefix, file).end;
}

NpyHeader parse_npy_header(std::span<const std::byte> prefix, const std::string& file) {
  const Extent extent = extent_of(prefix.first(std::min(prefix.size(), kLongPrefix)), file);
  if (prefix.size() < extent.end) {
    bad(file, fmt::format("cut off in the .npy header, at byte {}; it has {} bytes", prefix.size(),
                          extent.end));
  }
  NpyHeader header;
  header.header_bytes = extent.end;
  HeaderText(text_of(prefix.subspan(extent.begin, extent.end - extent.begin)), extent.begin, file)
      .parse(header);
  return header;
}

std::string encode_npy_header(const NpyHeader& header) {
  const auto* const known = std::find_if(std::begin(kTypes), std::end(kTypes),
                                         [&](const Descr& t) { return t.type == header.type; });
  if (known == std::end(kTypes)) {
    throw InvalidUsage(
        fmt::format("numpy has no type for {}; save float32", to_string(header.type)));
  }
  if (!bytes_of_shape(header.shape, sizeof(std::complex<double>))) {
    throw InvalidUsage(fmt::format("no file holds an array of the shape {}", header.shape));
  }
  const char order = size_of(header.type) == 1                ? '|'
                     : header.byte_order == ByteOrder::little ? '<'
                                                              : '>';
  std::string text =
      fmt::format("{{'descr': '{}{}', 'fortran_order': {}, 'shape': ({}{}), }}", order, known->name,
                  header.array_order == ArrayOrder::fortran ? "True" : "False",
                  fmt::join(header.shape, ", "), header.shape.size() == 1 ? "," : "");
  // Spaces and a newline, so that the elements begin at a multiple of 64.
  const auto padded = [&](std::size_t prefix) {
    const std::size_t bytes = prefix + text.size() + 1;
    return (bytes + kAlignment - 1) / kAlignment * kAlignment - prefix;
  };
  const bool fits = padded(kShortPrefix) <= 0xffff;
  const std::size_t length = padded(fits ? kShortPrefix : kLongPrefix);
  if (length > kNpyMaxHeaderBytes) {
    throw InvalidUsage(
        fmt::format("an array of {} dimensions is too much for .npy", header.shape.size()));
  }
  text.resize(length - 1, ' ');
  std::string bytes(kMagic);
  bytes += fits ? '\1' : '\2';
  bytes += '\0';
  for (std::size_t i = 0; i < (fits ? 2U : 4U); ++i) {
    bytes += static_cast<char>(length >> (8 * i) & 0xff);
  }
  return bytes + text + '\n';
}

}  // namespace lockstep::format
