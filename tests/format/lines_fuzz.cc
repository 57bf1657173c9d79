// Any bytes as text: the lines with their ends are the file again, whatever the pieces it comes in.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>

#include "format/lines.h"
#include "lockstep/error.h"

namespace {

using lockstep::format::ByteSource;

class Pieces final : public ByteSource {
 public:
  Pieces(std::string_view text, std::size_t piece) : text_(text), piece_(piece) {}
  std::size_t read(std::span<std::byte> into) override {
    const std::size_t got = std::min({piece_, into.size(), text_.size() - at_});
    std::ranges::copy(std::as_bytes(std::span(text_)).subspan(at_, got), into.begin());
    at_ += got;
    return got;
  }
  [[nodiscard]] std::uint64_t position() const noexcept override { return at_; }
  [[nodiscard]] const std::string& name() const noexcept override { return name_; }

 private:
  std::string_view text_;
  std::size_t piece_;
  std::size_t at_ = 0;
  std::string name_ = "fuzz";
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  const std::size_t piece = 1 + data[0];
  const std::size_t max_bytes = data[1];
  const std::string_view text(reinterpret_cast<const char*>(data) + 2, size - 2);
  lockstep::format::LineReader reader(std::make_unique<Pieces>(text, piece),
                                      {.max_bytes = max_bytes});
  std::string_view rest = text;
  try {
    while (const auto line = reader.next()) {
      if (line->size() > max_bytes || !rest.starts_with(*line)) std::abort();
      rest.remove_prefix(line->size());
      if (rest.starts_with("\r\n")) rest.remove_prefix(1);
      if (rest.starts_with('\n')) {
        rest.remove_prefix(1);
      } else if (!rest.empty()) {
        std::abort();
      }
    }
  } catch (const lockstep::DataError&) {
    if (std::min(rest.find('\n'), rest.size()) <= max_bytes) std::abort();
    return 0;
  }
  if (!rest.empty()) std::abort();
  return 0;
}
