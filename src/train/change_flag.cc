#include "train/change_flag.h"

#include <algorithm>
#include <cstring>
#include <span>

namespace lockstep::train {

ChangeFlag::ChangeFlag(std::vector<BucketLayout>& layouts) {
  for (std::size_t b = layouts.size(); b-- > 0;) {
    BucketLayout& layout = layouts[b];
    if (layout.alone) continue;
    const std::int64_t before = layout.bytes();
    place_ = {.bucket = b, .element = layout.elements};
    layout.elements += line_elements(layout.dtype);
    place_->bytes = layout.bytes() - before;
    return;
  }
}

void ChangeFlag::attach(const Buckets& buckets) {
  if (!place_) return;
  for (const Tensor& flat : buckets[place_->bucket]->flats()) {
    flags_.push_back(flat.narrow(0, place_->element, 1));
  }
}

void ChangeFlag::write(int replica, bool changed) {
  if (!place_) return;
  const Tensor& flag = flags_[static_cast<std::size_t>(replica)];
  if (changed) {
    flag.fill_(1);
  } else {
    std::memset(flag.data_ptr(), 0, flag.nbytes());
  }
}

bool ChangeFlag::is_set(detail::Workers& workers, const std::vector<bool>& changed,
                        const std::string& scale) const {
  if (place_) {
    const Tensor& sum = flags_.front();
    const auto* bytes = static_cast<const char*>(sum.data_ptr());
    return std::any_of(bytes, bytes + sum.nbytes(), [](char byte) { return byte != 0; });
  }
  std::int64_t count = std::count(changed.begin(), changed.end(), true);
  workers.sum(std::span(&count, 1), "changed parameters, " + scale);
  return count > 0;
}

std::int64_t ChangeFlag::bytes_in(std::size_t bucket) const {
  return place_ && place_->bucket == bucket ? place_->bytes : 0;
}

}  // namespace lockstep::train
