#include "sim/disk.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "sys/os_error.h"

namespace lockstep::sim {
namespace {

constexpr std::size_t kSector = 512;

[[noreturn]] void fail(const std::string& what, int error) { raise(sys::os_error(what, error)); }

std::string parent_of(const std::string& path) {
  const auto slash = path.rfind('/');
  return slash == 0 || slash == std::string::npos ? "/" : path.substr(0, slash);
}

bool is_below(const std::string& path, const std::string& directory) {
  return directory == "/" ? path.size() > 1 : path.starts_with(directory + "/");
}

}  // namespace

namespace detail {

void Content::apply(std::vector<std::byte>& to, const Write& write) {
  if (write.bytes.empty()) return to.clear();
  to.resize(std::max<std::size_t>(to.size(), write.offset + write.bytes.size()));
  std::copy(write.bytes.begin(), write.bytes.end(),
            to.begin() + static_cast<std::ptrdiff_t>(write.offset));
}

void Content::write(std::uint64_t offset, std::span<const std::byte> bytes) {
  unsafe_.push_back({offset, {bytes.begin(), bytes.end()}});
  apply(now_, unsafe_.back());
}

void Content::truncate() {
  if (now_.empty()) return;
  unsafe_.emplace_back();
  now_.clear();
}

void Content::sync() {
  for (const Write& write : unsafe_) apply(safe_, write);
  unsafe_.clear();
}

void Content::crash(Random& random) {
  for (Write& write : unsafe_) {
    const std::uint64_t fate = random.below(3);
    if (fate == 0) continue;
    if (fate == 1 && write.bytes.size() > kSector) {
      write.bytes.resize(kSector * (1 + random.below(write.bytes.size() / kSector)));
    }
    apply(safe_, write);
  }
  unsafe_.clear();
  now_ = safe_;
}

}  // namespace detail

/// An open file. A crash ends it.
class SimFile final : public sys::File {
 public:
  SimFile(Disk& disk, std::shared_ptr<detail::Content> content, std::string path, Disk::Open how)
      : disk_(disk),
        content_(std::move(content)),
        path_(std::move(path)),
        writable_(how != Disk::Open::read),
        crashes_(disk.crashes_) {}

  std::size_t read(std::uint64_t offset, std::span<std::byte> into) override {
    check(Disk::Operation::read, "read");
    const auto& bytes = content_->bytes();
    if (offset >= bytes.size() || into.empty()) return 0;
    const std::size_t taken = shortened(std::min<std::size_t>(into.size(), bytes.size() - offset));
    std::copy_n(bytes.begin() + static_cast<std::ptrdiff_t>(offset), taken, into.begin());
    return taken;
  }

  std::size_t write(std::uint64_t offset, std::span<const std::byte> from) override {
    check(Disk::Operation::write, "write");
    if (!writable_) fail(what("write"), EBADF);
    if (from.empty()) return 0;
    // Space is taken byte by byte of the content; a hole counts as if it were written.
    const std::uint64_t size = content_->bytes().size();
    const std::uint64_t room = size + disk_.room();
    if (offset >= room) fail(what("write"), ENOSPC);
    const std::size_t taken = shortened(std::min<std::size_t>(from.size(), room - offset));
    content_->write(offset, from.first(taken));
    return taken;
  }

  void sync() override {
    try {
      check(Disk::Operation::sync, "sync");
    } catch (...) {
      content_->forget_unsafe();
      throw;
    }
    content_->sync();
  }

  [[nodiscard]] std::uint64_t size() const override { return content_->bytes().size(); }

  void close() override {
    check(Disk::Operation::close, "close");
    closed_ = true;
  }

  [[nodiscard]] const std::string& path() const noexcept override { return path_; }

 private:
  [[nodiscard]] std::string what(std::string_view verb) const {
    return fmt::format("cannot {} {}", verb, path_);
  }
  void check(Disk::Operation operation, std::string_view verb) {
    if (closed_) fail(what(verb), EBADF);
    if (crashes_ != disk_.crashes_) fail(what(verb), EIO);
    disk_.fault_or_go_on(operation, what(verb));
  }
  std::size_t shortened(std::size_t bytes) {
    return disk_.options_.short_transfers ? 1 + disk_.world_.random().below(bytes) : bytes;
  }

  Disk& disk_;
  std::shared_ptr<detail::Content> content_;
  std::string path_;
  bool writable_;
  bool closed_ = false;
  std::uint64_t crashes_;
};

void Disk::apply(Names& names, const Change& change) {
  switch (change.kind) {
    case Change::Kind::add:
      names[change.path] = change.content;
      return;
    case Change::Kind::remove:
      names.erase(change.path);
      return;
    case Change::Kind::rename:
      break;
  }
  // A directory takes what is below it along.
  Names moved;
  for (auto at = names.begin(); at != names.end();) {
    if (at->first == change.path || is_below(at->first, change.path)) {
      moved[change.to + at->first.substr(change.path.size())] = std::move(at->second);
      at = names.erase(at);
    } else {
      ++at;
    }
  }
  for (auto& [path, content] : moved) names[path] = std::move(content);
}

void Disk::change(Change change) {
  apply(now_, change);
  unsafe_.push_back(std::move(change));
}

void Disk::fault_or_go_on(Operation operation, const std::string& what) {
  const auto fault = std::find_if(faults_.begin(), faults_.end(),
                                  [&](const Fault& f) { return f.operation == operation; });
  if (fault == faults_.end() || fault->after-- > 0) return;
  const int error = fault->error;
  faults_.erase(fault);
  fail(what, error);
}

bool Disk::is_directory(const std::string& path) const {
  if (path == "/") return true;
  const auto found = now_.find(path);
  return found != now_.end() && found->second == nullptr;
}

bool Disk::has_children(const std::string& directory) const {
  return std::any_of(now_.begin(), now_.end(),
                     [&](const auto& entry) { return is_below(entry.first, directory); });
}

void Disk::require_directory(const std::string& path, const std::string& what) const {
  if (is_directory(path)) return;
  fail(what, now_.contains(path) ? ENOTDIR : ENOENT);
}

std::uint64_t Disk::room() const {
  std::uint64_t used = 0;
  for (const auto& [path, content] : now_) {
    if (content != nullptr) used += content->bytes().size();
  }
  return options_.capacity - std::min(options_.capacity, used);
}

std::unique_ptr<sys::File> Disk::open(const std::string& path, Open how) {
  const std::string what =
      fmt::format("cannot {} {}", how == Open::create ? "create" : "open", path);
  fault_or_go_on(Operation::open, what);
  require_directory(parent_of(path), what);
  if (is_directory(path) && how != Open::create) fail(what, EISDIR);
  const auto found = now_.find(path);
  const bool exists = found != now_.end();
  if (exists && how == Open::create) fail(what, EEXIST);
  if (!exists && (how == Open::read || how == Open::update)) fail(what, ENOENT);
  std::shared_ptr<detail::Content> content =
      exists ? found->second : std::make_shared<detail::Content>();
  if (!exists) change({Change::Kind::add, path, {}, content});
  if (how == Open::replace) content->truncate();
  return std::make_unique<SimFile>(*this, std::move(content), path, how);
}

void Disk::rename(const std::string& from, const std::string& to) {
  const std::string what = fmt::format("cannot rename {} to {}", from, to);
  fault_or_go_on(Operation::rename, what);
  if (!now_.contains(from)) fail(what, ENOENT);
  require_directory(parent_of(to), what);
  if (from == to) return;
  if (is_below(to, from)) fail(what, EINVAL);
  if (now_.contains(to)) {
    if (is_directory(to) && !is_directory(from)) fail(what, EISDIR);
    if (!is_directory(to) && is_directory(from)) fail(what, ENOTDIR);
    if (is_directory(to) && has_children(to)) fail(what, ENOTEMPTY);
  }
  change({Change::Kind::rename, from, to, nullptr});
}

void Disk::remove(const std::string& path) {
  const std::string what = fmt::format("cannot remove {}", path);
  fault_or_go_on(Operation::remove, what);
  if (!now_.contains(path)) fail(what, ENOENT);
  if (is_directory(path) && has_children(path)) fail(what, ENOTEMPTY);
  change({Change::Kind::remove, path, {}, nullptr});
}

void Disk::make_directory(const std::string& path) {
  const std::string what = fmt::format("cannot make the directory {}", path);
  fault_or_go_on(Operation::make_directory, what);
  if (is_directory(path)) return;
  if (now_.contains(path)) fail(what, EEXIST);
  require_directory(parent_of(path), what);
  change({Change::Kind::add, path, {}, nullptr});
}

std::vector<std::string> Disk::list(const std::string& directory) {
  const std::string what = fmt::format("cannot list {}", directory);
  fault_or_go_on(Operation::list, what);
  require_directory(directory, what);
  std::vector<std::string> names;
  for (const auto& [path, content] : now_) {
    if (parent_of(path) == directory) names.push_back(path.substr(path.rfind('/') + 1));
  }
  std::sort(names.begin(), names.end());
  return names;
}

void Disk::sync_directory(const std::string& directory) {
  const std::string what = fmt::format("cannot sync the directory {}", directory);
  fault_or_go_on(Operation::sync_directory, what);
  require_directory(directory, what);
  // A journal is written in order: what came before the last change here becomes safe with it.
  const auto touches = [&](const Change& c) {
    return parent_of(c.path) == directory || (!c.to.empty() && parent_of(c.to) == directory);
  };
  const auto last = std::find_if(unsafe_.rbegin(), unsafe_.rend(), touches).base();
  for (auto at = unsafe_.begin(); at != last; ++at) apply(safe_, *at);
  unsafe_.erase(unsafe_.begin(), last);
}

std::uint64_t Disk::free_bytes(const std::string& path) {
  if (path != "/" && !now_.contains(path)) {
    fail(fmt::format("cannot ask for free space at {}", path), ENOENT);
  }
  return room();
}

void Disk::crash() {
  const std::size_t kept = world_.random().below(unsafe_.size() + 1);
  for (std::size_t i = 0; i < kept; ++i) apply(safe_, unsafe_[i]);
  unsafe_.clear();
  now_ = safe_;
  for (auto& [path, content] : now_) {
    if (content != nullptr) content->crash(world_.random());
  }
  ++crashes_;
  world_.note(kept);
}

}  // namespace lockstep::sim
