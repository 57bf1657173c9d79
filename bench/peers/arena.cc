#include "bench/peers/arena.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "bench/peers/launches.h"

namespace lockstep::bench::peers {
namespace {

constexpr const char* kMemory = "/dev/shm";

void remove_leftovers() {
  std::error_code error;  // what cannot be removed does not harm
  for (const auto& entry : std::filesystem::directory_iterator(kMemory, error)) {
    if (left_behind(entry.path().filename())) std::filesystem::remove_all(entry.path(), error);
  }
}

/// In memory, where shared files cost no disk writes.
std::string new_directory() {
  remove_leftovers();
  std::string path = fmt::format("{}/{}XXXXXX", kMemory, own_name());
  if (mkdtemp(path.data()) == nullptr)
    throw std::system_error(errno, std::generic_category(), "cannot make " + path);
  return path;
}

}  // namespace

Arena::Arena(Place place, std::string programs)
    : place_(place), programs_(std::move(programs)), directory_(new_directory()) {
  try {
    if (place == Place::network) networks_.emplace();
  } catch (...) {
    std::filesystem::remove_all(directory_);
    throw;
  }
}

Arena::~Arena() {
  groups_.clear();
  std::error_code error;  // what cannot be removed cannot be helped here
  std::filesystem::remove_all(directory_, error);
}

Launch Arena::launch(const std::string& name) const {
  return launch_of(name, {.programs = programs_,
                          .directory = directory_,
                          .ranks = place_ == Place::crowded ? 4 : 2,
                          .network = networks_ ? networks_->prefix() : std::string()});
}

Group& Arena::contestant(const std::string& name) {
  if (disqualified_.contains(name)) throw GroupFailed("failed before");
  std::unique_ptr<Group>& group = groups_[name];
  if (!group) {
    try {
      group = std::make_unique<Group>(launch(name), directory_);
    } catch (const GroupFailed&) {
      disqualify(name);
      throw;
    }
  }
  return *group;
}

void Arena::disqualify(const std::string& name) {
  disqualified_.insert(name);
  groups_.erase(name);
}

void Arena::forget() {
  for (auto next = groups_.begin(); next != groups_.end();) {
    const auto [name, group] = std::pair(next->first, next->second.get());
    ++next;
    try {
      group->forget();
    } catch (const GroupFailed&) {
      disqualify(name);
    }
  }
}

void Arena::shape(bool on) {
  if (!networks_) return;
  if (on) {
    networks_->shape();
  } else {
    networks_->unshape();
  }
}

}  // namespace lockstep::bench::peers
