#include "sys/segment.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/falloc.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <initializer_list>
#include <sstream>
#include <string_view>
#include <utility>

#include "sys/cgroup.h"
#include "sys/os_error.h"
#include "sys/pages.h"

namespace lockstep::sys {
namespace {

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
/// MADV_COLLAPSE, of Linux 6.1: unlike MADV_HUGEPAGE it needs no permission of the system's for
/// shared memory. An older one refuses.
constexpr int kCollapse = 25;
/// Past the last free page the kernel kills instead of failing: so much stays untouched.
constexpr std::size_t kReserve = std::size_t{16} << 20;
/// Memory is taken in pieces of about so many bytes.
constexpr std::size_t kPiece = std::size_t{64} << 20;

/// The sum of the named lines of a file of "name value" lines.
double sum_of(const std::filesystem::path& file, std::initializer_list<std::string_view> names) {
  double sum = 0;
  std::istringstream lines(read_text(file));
  std::string name;
  for (double value = 0; lines >> name >> value;) {
    if (std::find(names.begin(), names.end(), name) != names.end()) sum += value;
  }
  return sum;
}

/// Files that were read count as used, but give way.
double left_of(std::optional<double> limit, std::optional<double> used, double reclaimable) {
  if (!limit || !used) return kUnlimited;
  return std::max(*limit - *used + reclaimable, 0.0);
}

/// MAP_FAILED if there is no room. A huge page of a file can be one of the mapping's only where
/// both begin at a multiple of its size.
void* map_at_a_huge_page(int descriptor, std::size_t size) {
  const std::size_t room = round_up(size, kPage) + kHugePage;
  void* const found =
      ::mmap(nullptr, room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (found == MAP_FAILED) return MAP_FAILED;
  auto* const begin = static_cast<std::byte*>(found);
  const auto address = reinterpret_cast<std::uintptr_t>(found);
  const std::size_t before = round_up(address, kHugePage) - address;
  void* const at = ::mmap(begin + before, size, PROT_READ | PROT_WRITE,
                          MAP_SHARED | MAP_NORESERVE | MAP_FIXED, descriptor, 0);
  const int error = errno;
  const std::size_t used = before + (at == MAP_FAILED ? 0 : round_up(size, kPage));
  if (before > 0) ::munmap(begin, before);
  ::munmap(begin + used, room - used);
  errno = error;
  return at;
}

double mebibytes(double bytes) { return bytes / (1 << 20); }

}  // namespace

std::size_t free_memory(const std::string& meminfo, const std::string& memberships,
                        const std::string& mount) {
  double available = kUnlimited;
  std::istringstream lines(read_text(meminfo));
  for (std::string line; std::getline(lines, line);) {
    double kibibytes = 0;
    if (line.rfind("MemAvailable:", 0) != 0) continue;
    if (std::istringstream(line.substr(13)) >> kibibytes) available = kibibytes * 1024;
  }
  const double allowed = least_limit(
      read_text(memberships), mount, "memory",
      [](const auto& folder) {
        return left_of(
            number_in(folder / "memory.limit_in_bytes"),
            number_in(folder / "memory.usage_in_bytes"),
            sum_of(folder / "memory.stat", {"total_inactive_file", "total_active_file"}));
      },
      [](const auto& folder) {
        return left_of(number_in(folder / "memory.max"), number_in(folder / "memory.current"),
                       sum_of(folder / "memory.stat", {"inactive_file", "active_file"}));
      });
  const double least = std::min(available, allowed);
  return least >= 1e18 ? SIZE_MAX : static_cast<std::size_t>(least);
}

Segment::Segment(Descriptor descriptor, std::size_t bytes)
    : descriptor_(std::move(descriptor)), size_(bytes) {
  void* const at = map_at_a_huge_page(descriptor_.get(), size_);
  if (at == MAP_FAILED) {
    raise(os_error(fmt::format("cannot map {:.0f} MiB of room for shared memory; ulimit -v must "
                               "be unlimited or larger",
                               mebibytes(static_cast<double>(size_))),
                   errno));
  }
  data_ = static_cast<std::byte*>(at);
  // Gradients in a core file are large and say little.
  ::madvise(data_, size_, MADV_DONTDUMP);
  // Where the system allows it for shared memory, huge pages come by themselves.
  ::madvise(data_, size_, MADV_HUGEPAGE);
}

Segment Segment::create(const std::string& label, std::size_t bytes) {
  Descriptor descriptor(::memfd_create(label.c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!descriptor.valid()) raise(os_error("cannot make shared memory", errno));
  rlimit limit{};
  if (::getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < bytes) {
    // The kernel would not only refuse, but send a signal that ends the process.
    raise(os_error(fmt::format("cannot make {:.0f} MiB of room for shared memory, which counts as "
                               "a file",
                               mebibytes(static_cast<double>(bytes))),
                   EFBIG));
  }
  if (::ftruncate(descriptor.get(), static_cast<off_t>(bytes)) != 0 ||
      ::fcntl(descriptor.get(), F_ADD_SEALS, kSeals) != 0) {
    raise(os_error("cannot fix the size of shared memory", errno));
  }
  return {std::move(descriptor), bytes};
}

Segment Segment::map(Descriptor descriptor) {
  struct stat file {};
  if (::fstat(descriptor.get(), &file) != 0) raise(os_error("cannot look at a segment", errno));
  const int seals = ::fcntl(descriptor.get(), F_GET_SEALS);
  if (seals == -1 || (seals & kSeals) != kSeals || file.st_size <= 0) {
    throw DataError("a peer's shared memory is not of fixed size: it is not one of lockstep's");
  }
  return {std::move(descriptor), static_cast<std::size_t>(file.st_size)};
}

Segment::Segment(Segment&& other) noexcept
    : descriptor_(std::move(other.descriptor_)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)) {}

Segment& Segment::operator=(Segment&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

Segment::~Segment() {
  if (data_ != nullptr) ::munmap(data_, size_);
}

// Piece by piece, so that what is claimed and what is no longer free are the same bytes for a short
// time only.
Status Segment::commit(std::size_t offset, std::size_t bytes, Claim claim) {
  int error = 0;
  std::size_t others = 0;
  std::size_t available = 0;
  for (std::size_t done = 0; done < bytes && error == 0;) {
    const std::size_t left = bytes - done;
    others = claim(left);
    available = free_memory();
    const std::size_t here = available - std::min(available, others);
    if (left > here || here - left < kReserve) {
      error = ENOMEM;
      break;
    }
    const std::size_t at = offset + done;
    const std::size_t piece = std::min(left, (at + kPiece) / kHugePage * kHugePage - at);
    want_huge_pages(at, piece);
    const int result = retry_on_signal([&] {
      return ::fallocate(descriptor_.get(), 0, static_cast<off_t>(at), static_cast<off_t>(piece));
    });
    if (result != 0) error = errno;
    done += piece;
  }
  (void)claim(0);
  if (error == 0) return {};
  const auto text = [](std::size_t count) { return mebibytes(static_cast<double>(count)); };
  return os_error(
      fmt::format("cannot have {:.1f} MiB of shared memory: {:.1f} MiB are free here{}; raise the "
                  "memory limit of the container, or use smaller or fewer buffers",
                  text(bytes), text(available),
                  others == 0 ? ""
                              : fmt::format(", and other ranks of this host are taking {:.1f} MiB",
                                            text(others))),
      error);
}

void Segment::want_huge_pages(std::size_t offset, std::size_t bytes) noexcept {
  const std::size_t first = round_up(offset, kHugePage);
  const std::size_t last = (offset + bytes) / kHugePage * kHugePage;
  if (first >= last) return;
  // What is wholly empty would be left alone.
  for (std::size_t page = first; page < last; page += kHugePage) {
    if (::fallocate(descriptor_.get(), 0, static_cast<off_t>(page), kPage) != 0) return;
  }
  ::madvise(data_ + first, last - first, kCollapse);
}

void Segment::release(std::size_t offset, std::size_t bytes) noexcept {
  const std::size_t first = round_up(offset, kPage);
  const std::size_t last = (offset + bytes) / kPage * kPage;
  if (first >= last) return;
  ::fallocate(descriptor_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
              static_cast<off_t>(first), static_cast<off_t>(last - first));
}

}  // namespace lockstep::sys
