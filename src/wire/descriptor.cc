#include "wire/descriptor.h"

#include <fmt/format.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>

#include "base/printable.h"
#include "lockstep/dtype.h"
#include "lockstep/op.h"

namespace lockstep::wire {
namespace {

std::string_view kind_name(std::uint8_t kind) {
  constexpr std::string_view names[] = {"all_reduce",     "reduce",      "broadcast", "all_gather",
                                        "reduce_scatter", "gather",      "scatter",   "all_to_all",
                                        "barrier",        "send_receive"};
  return kind < std::size(names) ? names[kind] : "?";
}

}  // namespace

Name::Name(std::string_view whole) noexcept {
  if (whole.empty()) return;
  hash = XXH3_64bits(whole.data(), whole.size());
  if (hash == 0) hash = 1;
  const std::size_t most = text.size() - 1;
  if (whole.size() <= most) {
    whole.copy(text.data(), whole.size());
    return;
  }
  // Most names of parameters differ at their end: "encoder.layers.11.attention.query.weight".
  constexpr std::string_view kCut = "...";
  constexpr int kDigits = 4;
  const std::size_t kept = most - kCut.size() - 1 - kDigits;
  char* to = text.data();
  to += kCut.copy(to, kCut.size());
  to += whole.copy(to, kept, whole.size() - kept);
  *to++ = '#';
  for (int digit = 1; digit <= kDigits; ++digit) {
    *to++ = "0123456789abcdef"[hash >> (64 - 4 * digit) & 15];
  }
}

Description::Description(std::string_view what, Here here) noexcept {
  constexpr std::string_view kCut = "...";
  constexpr std::size_t kLongestFile = 40;
  const std::size_t most = text.size() - 1;
  std::array<char, 64> place{};
  std::size_t length = 0;
  std::string_view file(here.file);
  if (!file.empty()) {
    file.remove_prefix(file.rfind('/') + 1);  // npos + 1 is 0
    const bool cut = file.size() > kLongestFile;
    if (cut) file.remove_prefix(file.size() - kLongestFile);
    const auto end = fmt::format_to_n(place.data(), place.size(), " at {}{}:{}", cut ? kCut : "",
                                      file, here.line);
    length = end.size < place.size() ? end.size : place.size();
  }
  char* to = text.data();
  if (what.size() + length <= most) {
    to += what.copy(to, what.size());
  } else {
    to += what.copy(to, most - length - kCut.size());
    to += kCut.copy(to, kCut.size());
  }
  std::copy_n(place.data(), length, to);
}

std::uint64_t fingerprint(const Descriptor& descriptor) noexcept {
  // The text of the name says nothing that its hash does not; the description is not compared.
  return XXH3_64bits(&descriptor, offsetof(Descriptor, name) + offsetof(Name, text));
}

namespace {

std::string describe_collective(const Descriptor& d) {
  std::string text(kind_name(d.kind));
  if (d.op < kOpCount) text += fmt::format(" {}", to_string(static_cast<Op>(d.op)));
  if (d.dtype < kDTypeCount) {
    text += fmt::format(" {}[{}]", to_string(static_cast<DType>(d.dtype)), d.count);
    if (d.wire > 0 && d.wire < kDTypeCount) {
      text += fmt::format(" as {}", to_string(static_cast<DType>(d.wire)));
    }
  }
  if (d.shape_hash != 0) text += fmt::format(" (shape {:08x})", d.shape_hash >> 32);
  if (d.root >= 0) text += fmt::format(" root {}", d.root);
  if (d.to >= 0) text += fmt::format(" to {}", d.to);
  if (!d.name.view().empty()) text += fmt::format(" \"{}\"", printable(d.name.view()));
  return text;
}

}  // namespace

std::string describe(const Descriptor& d) {
  return d.description.empty() ? describe_collective(d) : printable(d.description.view());
}

std::string describe_fully(const Descriptor& d) {
  if (d.description.empty()) return describe_collective(d);
  return fmt::format("{} ({})", describe(d), describe_collective(d));
}

std::string place_of(const Descriptor& d, Here here) {
  const bool known = d.description.empty() && here.file[0] != '\0';
  return known ? fmt::format(" at {}:{}", here.file, here.line) : std::string();
}

}  // namespace lockstep::wire
