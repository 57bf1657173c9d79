#include "names.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <limits>

namespace lockstep::tool {
namespace {

std::vector<DType> all_dtypes() {
  std::vector<DType> all;
  for (int i = 0; i < kDTypeCount; ++i) all.push_back(static_cast<DType>(i));
  return all;
}

std::vector<Op> all_ops() {
  std::vector<Op> all;
  for (int i = 0; i < kOpCount; ++i) all.push_back(static_cast<Op>(i));
  return all;
}

struct Alias {
  std::string_view from;
  std::string_view to;
};
constexpr Alias kAliases[] = {{"float", "float32"}, {"half", "float16"}, {"double", "float64"},
                              {"bf16", "bfloat16"}, {"boolean", "bool"}, {"prod", "product"},
                              {"avg", "mean"},      {"average", "mean"}};

std::string_view without_alias(std::string_view text) {
  for (const Alias& alias : kAliases) {
    if (alias.from == text) return alias.to;
  }
  return text;
}

template <class T>
std::string joined(const std::vector<T>& values) {
  std::vector<std::string> names;
  for (const T value : values) names.emplace_back(to_string(value));
  return fmt::format("{}", fmt::join(names, ", "));
}

/// The values of `all` that the text names.
template <class T>
std::vector<T> parse_list(const char* what, std::string_view text, const std::vector<T>& all) {
  if (text == "all") return all;
  std::vector<T> chosen;
  for (const std::string& word : split(text, ',')) {
    const std::string_view name = without_alias(word);
    const auto found =
        std::find_if(all.begin(), all.end(), [&](T value) { return to_string(value) == name; });
    if (found == all.end()) {
      throw UsageError(
          fmt::format("no {} is called \"{}\"; there are {}, all", what, word, joined(all)));
    }
    chosen.push_back(*found);
  }
  return chosen;
}

}  // namespace

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> words;
  for (;;) {
    const std::size_t end = text.find(separator);
    words.emplace_back(text.substr(0, end));
    if (end == std::string_view::npos) return words;
    text.remove_prefix(end + 1);
  }
}

std::string kind_names() {
  std::vector<std::string> names;
  for (int i = 0; i < plan::kKindCount; ++i)
    names.emplace_back(plan::to_string(static_cast<plan::Kind>(i)));
  return fmt::format("{}", fmt::join(names, ", "));
}

plan::Kind parse_kind(std::string_view text) {
  for (int i = 0; i < plan::kKindCount; ++i) {
    const auto kind = static_cast<plan::Kind>(i);
    if (plan::to_string(kind) == text) return kind;
  }
  throw UsageError(fmt::format("no collective is called \"{}\"; there are {}", text, kind_names()));
}

std::vector<DType> parse_dtypes(std::string_view text) {
  return parse_list("element type", text, all_dtypes());
}
std::string dtype_names() { return joined(all_dtypes()); }

std::vector<Op> parse_ops(std::string_view text) {
  return parse_list("operation", text, all_ops());
}
std::string op_names() { return joined(all_ops()); }

std::string refuses(Op op, DType dtype) {
  if (op == Op::mean && (is_integer(dtype) || dtype == DType::boolean)) {
    return fmt::format("mean of {} does not exist: take sum and divide", to_string(dtype));
  }
  if (dtype == DType::boolean && op != Op::min && op != Op::max) {
    return fmt::format("{} of bool does not exist: take min (and) or max (or)", to_string(op));
  }
  if (is_complex(dtype) && op != Op::sum && op != Op::mean) {
    return fmt::format("{} of {} does not exist: complex types have sum and mean", to_string(op),
                       to_string(dtype));
  }
  return {};
}

std::uint64_t parse_size(std::string_view option, std::string_view text) {
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  std::string unit(end, text.data() + text.size());
  for (char& letter : unit) letter = static_cast<char>(std::tolower(letter));
  for (const std::string_view ending : {"ib", "b"}) {
    if (unit.ends_with(ending)) {
      unit.resize(unit.size() - ending.size());
      break;
    }
  }
  constexpr std::string_view kUnits = "kmgt";
  int shift = 0;
  bool right = error == std::errc() && unit.size() <= 1;
  if (right && unit.size() == 1) {
    const std::size_t unit_index = kUnits.find(unit[0]);
    right = unit_index != std::string_view::npos;
    shift = 10 * (static_cast<int>(unit_index) + 1);
  }
  if (!right || number > (std::numeric_limits<std::uint64_t>::max() >> shift)) {
    throw UsageError(
        fmt::format("{} is \"{}\", which is no size; write 4096, 64K, 16M or 1G", option, text));
  }
  return number << shift;
}

std::string size_text(std::uint64_t bytes) {
  constexpr std::string_view kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  auto value = static_cast<double>(bytes);
  std::size_t unit = 0;
  for (; value >= 1024 && unit + 1 < std::size(kUnits); ++unit) value /= 1024;
  const bool whole = value == static_cast<double>(static_cast<std::uint64_t>(value));
  return fmt::format("{:.{}f} {}", value, whole ? 0 : 1, kUnits[unit]);
}

std::string_view to_string(plan::Access access) noexcept {
  if (access == plan::Access::shared) return "shared";
  return access == plan::Access::slots ? "slots" : "messages";
}
std::string_view to_string(plan::Order order) noexcept {
  return order == plan::Order::any ? "any" : "fixed_tree";
}

}  // namespace lockstep::tool
