// Values that live on several replicas. Locality is part of the type, so that a program which reads
// an unreduced value as if it were one, or updates a variable with it, does not compile.
//
//   PerReplica<T>  a value of its own on each replica        what run() returns
//   Mirrored<T>    equal on each replica                     what broadcast() and reduce_to() give
//   Colocated<T>   equal on each device of some variable     what reduce_to(.., variable) gives
//   NonSlot<T>     equal on each non-slot device             what update_non_slot() gives
//   Agreed<T>      one replica's view of a mirrored value    what a step function sees of one
//
// The number of replicas never changes a type: with one replica there is one component, and
// single() reads it. Values are immutable and may be copied; copies share the tensors. They may be
// read from any thread.
#pragma once

#include <memory>
#include <ostream>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/device.h"
#include "lockstep/tensor.h"

namespace lockstep {

namespace locality {
struct PerReplica {
  static constexpr const char* name = "PerReplica";
};
struct Mirrored {
  static constexpr const char* name = "Mirrored";
};
struct Colocated {
  static constexpr const char* name = "Colocated";
};
struct NonSlot {
  static constexpr const char* name = "NonSlot";
};
}  // namespace locality

using DeviceList = std::vector<Device>;

namespace detail {
/// Which component the calling thread means: its replica's inside a step function, the one being
/// updated inside update(), else the one on the current device, else the first.
int readable_component(const DeviceList& devices);
[[noreturn]] void no_such_component(const char* locality, int index, int size);
[[noreturn]] void no_component_on(const char* locality, const Device& device,
                                  const DeviceList& devices);
[[noreturn]] void not_single(const char* locality, int size);
void check_component_count(const char* locality, std::size_t values, std::size_t devices);
void print(std::ostream& out, const Tensor& tensor);
}  // namespace detail

template <class T, class L>
class Distributed {
 public:
  using value_type = T;
  using locality_type = L;
  static constexpr bool kEqualEverywhere = !std::is_same_v<L, locality::PerReplica>;

  /// One value for each device, in replica order.
  Distributed(std::vector<T> values, DeviceList devices)
      : Distributed(std::move(values), std::make_shared<const DeviceList>(std::move(devices))) {}
  Distributed(std::vector<T> values, std::shared_ptr<const DeviceList> devices)
      : devices_(std::move(devices)) {
    detail::check_component_count(L::name, values.size(), devices_->size());
    slots_.reserve(values.size());
    for (auto&& value : values) slots_.push_back(Slot{std::move(value)});
  }

  [[nodiscard]] int size() const noexcept { return static_cast<int>(slots_.size()); }
  [[nodiscard]] const DeviceList& devices() const noexcept { return *devices_; }
  [[nodiscard]] const std::shared_ptr<const DeviceList>& shared_devices() const noexcept {
    return devices_;
  }

  /// The component of a replica; InvalidUsage if there is none.
  [[nodiscard]] const T& operator[](int index) const {
    if (index < 0 || index >= size()) detail::no_such_component(L::name, index, size());
    return slots_[static_cast<std::size_t>(index)].value;
  }
  /// The component on a device; InvalidUsage if there is none.
  [[nodiscard]] const T& get(const Device& device) const {
    for (std::size_t i = 0; i < slots_.size(); ++i) {
      if ((*devices_)[i] == device) return slots_[i].value;
    }
    detail::no_component_on(L::name, device, *devices_);
  }
  /// The only component; InvalidUsage if there are several.
  [[nodiscard]] const T& single() const {
    if (size() != 1) detail::not_single(L::name, size());
    return slots_.front().value;
  }

  /// The value, read from the nearest component: all are equal.
  [[nodiscard]] const T& any() const {
    static_assert(kEqualEverywhere,
                  "lockstep: a per-replica value has no one reading; reduce it, or take "
                  "local_results() of it");
    return (*this)[detail::readable_component(*devices_)];
  }
  /// A mirrored value reads as what it is a copy of. A per-replica one is refused by any(), in one
  /// sentence; without a conversion the compiler would list all that it tried instead.
  operator const T&() const
      requires(std::is_same_v<L, locality::Mirrored> || std::is_same_v<L, locality::PerReplica>) {
    return any();
  }
  /// What is called on a tensor first, of the value that all replicas have: item<double>(). A
  /// per-replica one is refused in one sentence.
  template <class Number = void>
  [[nodiscard]] auto item() const {
    static_assert(kEqualEverywhere,
                  "lockstep: item() of a PerReplica value: there is one on each replica. Reduce it "
                  "first: strategy.reduce(ReduceOp::mean, value).item<double>(); or read that of "
                  "one replica: value[0].item<double>()");
    if constexpr (kEqualEverywhere && std::is_void_v<Number>) {
      return any().item();
    } else if constexpr (kEqualEverywhere) {
      return any().template item<Number>();
    }
  }
  template <class... Args>
  [[nodiscard]] T mean(const Args&... args) const {
    refuse_tensor_call();
    if constexpr (kEqualEverywhere) return any().mean(args...);
  }
  template <class... Args>
  [[nodiscard]] T sum(const Args&... args) const {
    refuse_tensor_call();
    if constexpr (kEqualEverywhere) return any().sum(args...);
  }
  template <class... Args>
  void backward(const Args&... args) const {
    static_assert(kEqualEverywhere,
                  "lockstep: backward() of a PerReplica value: each replica calls it on its own "
                  "loss inside the step function, before apply()");
    if constexpr (kEqualEverywhere) any().backward(args...);
  }

 private:
  static void refuse_tensor_call() {
    static_assert(kEqualEverywhere,
                  "lockstep: sum() or mean() of a PerReplica value: there is a tensor on each "
                  "replica. Combine them with strategy.reduce(ReduceOp::mean, value, along(0)), or "
                  "take that of one replica: value[0]");
  }

  struct Slot {  // keeps bool addressable
    T value;
  };
  std::vector<Slot> slots_;
  std::shared_ptr<const DeviceList> devices_;
};

template <class T>
using PerReplica = Distributed<T, locality::PerReplica>;
template <class T>
using Mirrored = Distributed<T, locality::Mirrored>;
template <class T>
using Colocated = Distributed<T, locality::Colocated>;
template <class T>
using NonSlot = Distributed<T, locality::NonSlot>;

/// One replica's view of a value that is equal on all replicas: usable as a T, and remembered as
/// agreed, so that returning it from a step function gives a Mirrored.
template <class T>
class Agreed : public T {
 public:
  explicit Agreed(T value) : T(std::move(value)) {}
};
template <class T>
requires(!std::is_class_v<T>) class Agreed<T> {
 public:
  explicit Agreed(T value) : value_(value) {}
  operator const T&() const noexcept { return value_; }

 private:
  T value_;
};

namespace detail {
template <class T>
inline constexpr bool is_distributed = false;
template <class T, class L>
inline constexpr bool is_distributed<Distributed<T, L>> = true;
template <class T>
inline constexpr bool is_agreed = false;
template <class T>
inline constexpr bool is_agreed<Agreed<T>> = true;

template <class T>
void print_value(std::ostream& out, const T& value) {
  if constexpr (std::is_convertible_v<const T&, const Tensor&>) {
    print(out, value);
  } else if constexpr (requires { out << value; }) {
    out << value;
  } else {
    out << "<value>";
  }
}
}  // namespace detail

/// PerReplica:{0: .., 1: ..}, one line a component.
template <class T, class L>
std::ostream& operator<<(std::ostream& out, const Distributed<T, L>& value) {
  out << L::name << ":{";
  for (int i = 0; i < value.size(); ++i) {
    out << (i == 0 ? "\n  " : ",\n  ") << i << ": ";
    detail::print_value(out, value[i]);
  }
  return out << "\n}";
}

/// The components of this process, in replica order; of a plain value, the value alone.
template <class T, class L>
std::vector<T> local_results(const Distributed<T, L>& value) {
  std::vector<T> results;
  results.reserve(static_cast<std::size_t>(value.size()));
  for (int i = 0; i < value.size(); ++i) results.push_back(value[i]);
  return results;
}
template <class T>
requires(!detail::is_distributed<T> &&
         !requires(const T& v) { v.components(); }) std::vector<T> local_results(const T& value) {
  return {value};
}

}  // namespace lockstep
