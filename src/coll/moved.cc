#include "coll/moved.h"

#include <fmt/format.h>

#include <iterator>

namespace lockstep::coll {

std::string to_text(const Moved& moved) {
  const char* const units[] = {"bytes", "KiB", "MiB", "GiB"};
  std::size_t unit = 0;
  double scale = 1;
  for (; static_cast<double>(moved.total) >= 1024 * scale && unit + 1 < std::size(units); ++unit) {
    scale *= 1024;
  }
  return fmt::format("{:.{}f} of {:.{}f} {}", static_cast<double>(moved.done) / scale,
                     unit == 0 ? 0 : 1, static_cast<double>(moved.total) / scale, unit == 0 ? 0 : 1,
                     units[unit]);
}

}  // namespace lockstep::coll
