// Admission: whether a rank may join, by what it says of itself.
#pragma once

#include <string>

#include "base/status.h"
#include "lockstep/coll/join.h"
#include "wire/hello.h"

namespace lockstep::coll {

/// The options that must be the same on all ranks, in words.
std::string agreed_options(const JoinOptions& options);
/// All that must be, a line each: "name: value".
std::string agreed_lines(const JoinOptions& options);
/// Where the lines of rank 0 and of this rank begin to differ, with both values; empty if nowhere,
/// as far as there are lines of rank 0.
std::string first_difference(const std::string& rank_0, const std::string& own);

/// What helps if two jobs meet at one port.
inline constexpr const char* kOtherPorts =
    "two jobs on the same machines need ports of their own: other addresses, or under Slurm "
    "another "
    "LOCKSTEP_PORT_BASE";
/// What both processes are told, by which either can be found.
std::string double_claim(const wire::Hello& first, const wire::Hello& second);

/// ConfigError naming the difference if the one that calls was given something else than rank 0,
/// whose own Hello and options these are; ok if it may join. `taken` is who has that rank already,
/// null if nobody. Ranks that compute otherwise get a warning, unless they must not.
Status objection(const wire::Hello& caller, const wire::Hello& own, const JoinOptions& options,
                 const wire::Hello* taken);

}  // namespace lockstep::coll
