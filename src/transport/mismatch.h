// What a disagreement between ranks looks like: a table of who asked for what.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/status.h"
#include "wire/descriptor.h"

namespace lockstep::transport {

/// rows[r] is what rank r asked for in operation `sequence`; empty if it has not arrived yet (or is
/// not known). The culprits are the ranks that differ from the most frequent request; where no
/// request is more frequent than the others, all that have arrived. In a subgroup, members[r] is
/// what row r's rank is called in the generation; empty: its own number.
Status mismatch(std::uint64_t sequence, const std::vector<std::optional<wire::Descriptor>>& rows,
                std::span<const int> members = {});

}  // namespace lockstep::transport
