// The words of the command line: collectives, element types, operations and sizes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/dtype.h"
#include "lockstep/op.h"
#include "plan/algorithm.h"
#include "usage_error.h"

namespace lockstep::tool {

/// "all_reduce" and so on.
plan::Kind parse_kind(std::string_view text);
std::string kind_names();

/// One name, several with commas, or "all". "float", "half", "double" and "bf16" are understood.
std::vector<DType> parse_dtypes(std::string_view text);
std::string dtype_names();

/// One name, several with commas, or "all". "prod" and "avg" are understood.
std::vector<Op> parse_ops(std::string_view text);
std::string op_names();

/// Empty, or why the collectives do not have this operation for this type.
std::string refuses(Op op, DType dtype);

/// "4", "64K", "16M", "1G", also "16MiB": bytes, in powers of 1,024. `option` is for the message.
std::uint64_t parse_size(std::string_view option, std::string_view text);

/// "4 B", "64 KiB", "1.5 MiB".
std::string size_text(std::uint64_t bytes);

std::vector<std::string> split(std::string_view text, char separator);

std::string_view to_string(plan::Access access) noexcept;
std::string_view to_string(plan::Order order) noexcept;

}  // namespace lockstep::tool
