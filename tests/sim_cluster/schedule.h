// Schedule: what one seed stands for. Who takes part, what they ask for, and what goes wrong.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/clock.h"
#include "lockstep/dtype.h"
#include "lockstep/op.h"
#include "plan/algorithm.h"
#include "plan/layout.h"
#include "wire/descriptor.h"

namespace lockstep::simulated {

enum class Transport : std::uint8_t { stream, memory };

enum class Fault : std::uint8_t {
  none,
  delay,        // slow, uneven links with little room
  choppy,       // bytes arrive in tiny pieces
  short_pause,  // a rank stands still for less than Timing::dead
  long_pause,   // and for more
  kill,
  silence,     // a rank is cut off from all others
  cut,         // the connections between two ranks break
  half_close,  // those from one rank to another are closed in that direction
  abort,       // a rank's user gives up
  mismatch,    // a rank asks for something else
};
inline constexpr int kFaultCount = 11;
const char* to_string(Fault fault) noexcept;
/// Whether the generation may survive it.
constexpr bool is_harmless(Fault fault) noexcept { return fault <= Fault::short_pause; }

/// Whether it is one of connections, between two ranks that are well.
constexpr bool breaks_connections(Fault fault) noexcept {
  return fault == Fault::cut || fault == Fault::half_close;
}

/// Bytes are lost, and no connection ends.
constexpr bool is_silent(Fault fault) noexcept { return fault == Fault::silence; }

struct Task {
  plan::Request request;
  const plan::Algorithm* algorithm = nullptr;
  DType dtype = DType::float32;
  Op op = Op::sum;
  bool in_place = false;     // where the kind allows it
  std::uint64_t values = 0;  // seed of the inputs
};

/// As it goes over the wire.
wire::Descriptor descriptor_of(const Task& task, std::uint64_t sequence);
std::string describe(const Task& task);

struct Schedule {
  std::uint64_t seed = 0;
  Transport transport = Transport::stream;
  plan::Layout layout = plan::Layout::uniform(1);
  std::vector<Task> tasks;
  Fault fault = Fault::none;
  int victim = 0;
  int neighbour = 0;              // where connections break: the other end
  std::uint64_t strikes_at = 0;   // the fault comes after this many polls
  Duration lasts{};               // pauses, silence
  std::vector<Task> other_tasks;  // mismatch: what the victim asks for instead
  std::size_t first_difference = 0;

  [[nodiscard]] int ranks() const noexcept { return layout.ranks(); }
  [[nodiscard]] const std::vector<Task>& tasks_of(int rank) const noexcept {
    return fault == Fault::mismatch && rank == victim ? other_tasks : tasks;
  }
};

Schedule make_schedule(std::uint64_t seed);
std::string describe(const Schedule& schedule);

}  // namespace lockstep::simulated
