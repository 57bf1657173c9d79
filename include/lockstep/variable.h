// Variables: state that every replica has a copy of.
//
//   auto w = ls::variable("w", torch::zeros({784, 10}), {.trainable = true});
//   auto seen = ls::variable("seen", 0.0, {.synchronization = Synchronization::on_read,
//                                          .aggregation = Aggregation::sum});
//
// What a variable becomes is the current strategy's business: a copy on each replica under
// MirroredStrategy, one tensor under CentralStorageStrategy and with no strategy at all.
//
//   mirrored (on_write)  the copies are always equal: a write inside a step function aggregates
//                        the replicas' values first, then writes every copy
//   sync-on-read         each replica writes its own copy, reading outside of step functions
//                        aggregates
//
// Reading inside a step function gives the replica's own tensor, live: gradients flow to it, and
// later writes show through. Reading elsewhere gives a copy. A Variable is a handle: copying it
// refers to the same state. Methods may be called from any thread that stands in a context of the
// variable's strategy, or in none (then the strategy is entered for the call).
#pragma once

#include <ATen/core/Scalar.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/here.h"
#include "lockstep/value.h"

namespace lockstep {

enum class Synchronization : std::uint8_t { automatic, none, on_write, on_read };
enum class Aggregation : std::uint8_t { none, sum, mean, only_first_replica };

/// The words "auto", "none", "on_write", "on_read" and "none", "sum", "mean",
/// "only_first_replica", in any case; InvalidUsage for another.
Synchronization parse_synchronization(std::string_view word);
Aggregation parse_aggregation(std::string_view word);
std::string_view to_string(Synchronization value) noexcept;
std::string_view to_string(Aggregation value) noexcept;

struct VariableOptions {
  Synchronization synchronization = Synchronization::automatic;
  Aggregation aggregation = Aggregation::none;
  bool trainable = false;  // requires_grad
};

/// Rows of a tensor: values[i] belongs at indices[i]. Duplicates add up.
struct IndexedSlices {
  Tensor indices;  // int32 or int64, one dimension
  Tensor values;   // as many rows
};

namespace detail {
struct VariableState;
class StrategyCore;
}  // namespace detail

class Component;

class Variable {
 public:
  [[nodiscard]] const std::string& name() const noexcept;
  [[nodiscard]] const DeviceList& devices() const noexcept;
  [[nodiscard]] at::ScalarType dtype() const;
  [[nodiscard]] at::IntArrayRef shape() const;
  [[nodiscard]] bool trainable() const noexcept;
  [[nodiscard]] Synchronization synchronization() const noexcept;  // on_write or on_read
  [[nodiscard]] Aggregation aggregation() const noexcept;

  /// The value in this context: inside a step function the replica's own tensor; elsewhere a copy
  /// of a mirrored variable, the aggregate of a sync-on-read one.
  [[nodiscard]] Tensor read(Here here = Here::now()) const;
  [[nodiscard]] Tensor value(Here here = Here::now()) const { return read(here); }
  /// A conversion has no place in the program that messages could name.
  operator Tensor() const { return read(Here{}); }

  /// Writes; give back the new value as read() would (an undefined tensor where read() has none).
  /// Inside a step function a mirrored variable aggregates first, so every replica must make the
  /// same call; a number that is the same on every replica is not multiplied by their count.
  Tensor assign(const Tensor& value, Here here = Here::now()) const;
  Tensor assign(const at::Scalar& value, Here here = Here::now()) const;
  Tensor assign(const Mirrored<Tensor>& value, Here here = Here::now()) const;
  Tensor assign_add(const Tensor& value, Here here = Here::now()) const;
  Tensor assign_add(const at::Scalar& value, Here here = Here::now()) const;
  Tensor assign_add(const Mirrored<Tensor>& value, Here here = Here::now()) const;
  Tensor assign_sub(const Tensor& value, Here here = Here::now()) const;
  Tensor assign_sub(const at::Scalar& value, Here here = Here::now()) const;
  Tensor assign_sub(const Mirrored<Tensor>& value, Here here = Here::now()) const;
  /// Writes this replica's copy only. The copies of a mirrored variable then differ until the next
  /// write: for those who know. Only inside a step function.
  Tensor assign_local(const Tensor& value, Here here = Here::now()) const;
  Tensor assign_local(const at::Scalar& value, Here here = Here::now()) const;

  template <class T>
  Tensor assign(const PerReplica<T>&) const {
    return refuse_per_replica<T>();
  }
  template <class T>
  Tensor assign_add(const PerReplica<T>&) const {
    return refuse_per_replica<T>();
  }
  template <class T>
  Tensor assign_sub(const PerReplica<T>&) const {
    return refuse_per_replica<T>();
  }

  Tensor scatter_add(const IndexedSlices& slices, Here here = Here::now()) const;
  Tensor scatter_sub(const IndexedSlices& slices, Here here = Here::now()) const;
  Tensor scatter_mul(const IndexedSlices& slices, Here here = Here::now()) const;
  Tensor scatter_div(const IndexedSlices& slices, Here here = Here::now()) const;
  Tensor scatter_min(const IndexedSlices& slices, Here here = Here::now()) const;
  Tensor scatter_max(const IndexedSlices& slices, Here here = Here::now()) const;
  Tensor scatter_update(const IndexedSlices& slices, Here here = Here::now()) const;

  /// The copies, live, in the order of devices().
  [[nodiscard]] std::vector<Component> components() const;
  [[nodiscard]] int size() const noexcept;
  [[nodiscard]] Component operator[](int index) const;
  /// The copy on a device; InvalidUsage if there is none.
  [[nodiscard]] Component component_on(const Device& device) const;

  /// What a checkpoint keeps: the value, or the aggregate of a sync-on-read variable; and its
  /// inverse. A sum is divided among the replicas, so that it survives the round trip.
  [[nodiscard]] Tensor export_value(Here here = Here::now()) const;
  void restore_value(const Tensor& saved) const;

  [[nodiscard]] bool same_as(const Variable& other) const noexcept {
    return state_ == other.state_;
  }

  explicit Variable(std::shared_ptr<detail::VariableState> state) : state_(std::move(state)) {}
  [[nodiscard]] detail::VariableState& state() const noexcept { return *state_; }

 private:
  template <class T>
  static Tensor refuse_per_replica() {
    static_assert(!sizeof(T*),
                  "lockstep: a variable takes no PerReplica value: the copies would differ; reduce "
                  "it first, or assign inside the step function with an aggregation");
    return {};
  }

  std::shared_ptr<detail::VariableState> state_;
};

std::ostream& operator<<(std::ostream& out, const Variable& variable);

/// One copy of a variable: a tensor that knows what it is a copy of. Regrouped over all replicas,
/// components are the variable again.
class Component : public Tensor {
 public:
  Component(Tensor tensor, Variable owner, int index)
      : Tensor(std::move(tensor)), owner_(std::move(owner)), index_(index) {}

  [[nodiscard]] const Variable& variable() const noexcept { return owner_; }
  [[nodiscard]] int index() const noexcept { return index_; }
  [[nodiscard]] const Device& device() const noexcept;
  /// "w", "w/replica_1", ...
  [[nodiscard]] std::string name() const;

  /// Write this copy, without recording for autograd.
  void assign(const Tensor& value) const;
  void assign(const at::Scalar& value) const;
  void assign_add(const Tensor& value) const;
  void assign_add(const at::Scalar& value) const;
  void assign_sub(const Tensor& value) const;
  void assign_sub(const at::Scalar& value) const;

 private:
  Variable owner_;
  int index_;
};

/// A variable of the non-slot devices: an optimizer's state that belongs to no variable. It has a
/// type of its own because only update_non_slot() may write it.
class NonSlotVariable {
 public:
  explicit NonSlotVariable(Variable variable) : variable_(std::move(variable)) {}
  [[nodiscard]] const Variable& variable() const noexcept { return variable_; }
  [[nodiscard]] Tensor read(Here here = Here::now()) const { return variable_.read(here); }
  operator Tensor() const { return variable_; }

 private:
  Variable variable_;
};

std::ostream& operator<<(std::ostream& out, const NonSlotVariable& variable);

/// Creates a variable as the current strategy does. The initial value of the first copy is what is
/// given (a function is called once); the other copies are equal, also if it is random. Inside a
/// step function replica 0 creates and the others get the same variable by its name.
Variable variable(std::string name, const Tensor& initial, const VariableOptions& options = {},
                  Here here = Here::now());
Variable variable(std::string name, const at::Scalar& initial, const VariableOptions& options = {},
                  Here here = Here::now());
Variable variable(std::string name, const std::function<Tensor()>& initial,
                  const VariableOptions& options = {}, Here here = Here::now());

/// "foo_1/bar_1/baz" -> "foo/bar/baz": the name under which replicas find each other's variables.
std::string canonical_variable_name(std::string_view name);

/// The variable a tensor is a component of, if any.
const Variable* value_container(const Component& component);

inline std::vector<Component> local_results(const Variable& variable) {
  return variable.components();
}

}  // namespace lockstep
