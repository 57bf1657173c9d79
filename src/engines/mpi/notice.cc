#include "engines/mpi/notice.h"

#include <algorithm>

#include "base/printable.h"

namespace lockstep::mpi {

void Notice::set_cause(const Status& why) noexcept {
  kind = Kind::failed;
  error_kind = static_cast<std::int32_t>(why.kind());
  code = static_cast<std::int32_t>(why.code());
  const std::size_t named = std::min(culprits.size(), why.culprits().size());
  std::copy_n(why.culprits().begin(), named, culprits.begin());
  culprit_count = static_cast<std::int32_t>(named);
  text_length = static_cast<std::int32_t>(why.message().copy(text.data(), text.size()));
}

Status Notice::cause() const {
  return {static_cast<ErrorKind>(error_kind), static_cast<Code>(code),
          printable_lines({text.data(), static_cast<std::size_t>(text_length)}),
          std::vector<int>(culprits.begin(), culprits.begin() + culprit_count)};
}

}  // namespace lockstep::mpi
