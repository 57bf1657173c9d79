// Place: which rank this process is, and how it would join.
#pragma once

#include <optional>

#include "doctor/finding.h"
#include "doctor/secret.h"
#include "lockstep/coll/join.h"

namespace lockstep::tool {

struct Place {
  /// Empty: the environment cannot be understood; the findings say why.
  std::optional<coll::JoinOptions> joining;
  Findings findings;

  [[nodiscard]] int size() const {
    return joining ? static_cast<int>(joining->addresses.size()) : 1;
  }
  [[nodiscard]] int rank() const { return joining ? joining->rank : 0; }
  /// All addresses are loopback: ranks meet through files, whatever the ports.
  [[nodiscard]] bool by_files() const;
  [[nodiscard]] Spread spread() const;
  /// Ranks on this host, as far as the launcher says; at least 1.
  [[nodiscard]] int local_ranks() const;
};

/// Checks the key first: it is taken out of the environment by reading it.
Place find_place();

}  // namespace lockstep::tool
