// Place: which rank this process is, and how it would join.
#pragma once

#include <optional>

#include "doctor/finding.h"
#include "doctor/secret.h"
#include "lockstep/coll/join.h"

namespace lockstep::tool {

struct Place {
  int rank = 0;
  int size = 1;
  /// Empty: the environment cannot be understood; the findings say why.
  std::optional<coll::JoinOptions> joining;
  Findings findings;

  /// The addresses are all of this host: ranks meet at Unix sockets, and the ports are names only.
  [[nodiscard]] bool without_ports() const;
  [[nodiscard]] Spread spread() const;
  /// Ranks on this host, as far as the launcher says; at least 1.
  [[nodiscard]] int local_ranks() const;
};

/// Checks the key first: it is taken out of the environment by reading it.
Place find_place();

}  // namespace lockstep::tool
