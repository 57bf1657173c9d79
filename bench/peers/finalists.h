// Which members of a family go on to take turns with us, once everybody has been tried.
#pragma once

#include <optional>
#include <vector>

namespace lockstep::bench::peers {

/// By member: the fastest, and up to two more that are close to it. A member without a time, all of
/// whose trials were dropped, goes on as well: nothing says that it is not the best.
std::vector<bool> finalists_of(const std::vector<std::optional<double>>& seconds);

}  // namespace lockstep::bench::peers
