// DynamicNest: a nest whose shape is known only when the program runs, and the rules by which the
// nests of all replicas become one (regroup) and one nest becomes each replica's (select).
//
// run() and merge_call() do this at compile time, with static types; this is for code that reads
// structures from elsewhere.
//
//   auto nest = [](const char* n) { return DynamicNest::tuple({n, DynamicNest::list({n, 1})}); };
//   DynamicNest both = regroup({nest("a"), nest("b")});    // (PerReplica(a, b), [.., ..])
//   select(1, both);                                       // ("b", ["b", 1])
//
// A value: copies share what they hold and are the same object, as regroup sees it; two leaves made
// apart are not, however equal. Immutable, so it may be read from any thread.
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <ostream>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "lockstep/variable.h"

namespace lockstep {

class DynamicNest {
 public:
  using List = std::vector<DynamicNest>;
  using Fields = std::vector<std::pair<std::string, DynamicNest>>;
  using Dict = std::map<std::string, DynamicNest>;

  enum class Kind {
    null,
    boolean,
    integer,
    real,
    string,
    tensor,
    variable,
    component,
    list,
    tuple,
    named_tuple,
    dict,
    per_replica,
    mirrored,
  };

  DynamicNest() = default;  // null
  DynamicNest(std::nullptr_t) {}
  template <std::same_as<bool> T>
  DynamicNest(T value) : DynamicNest(Kind::boolean, value) {}
  template <std::integral T>
  requires(!std::same_as<T, bool>) DynamicNest(T value)
      : DynamicNest(Kind::integer, static_cast<std::int64_t>(value)) {}
  DynamicNest(double value) : DynamicNest(Kind::real, value) {}
  DynamicNest(const char* text) : DynamicNest(Kind::string, std::string(text)) {}
  DynamicNest(std::string text) : DynamicNest(Kind::string, std::move(text)) {}
  DynamicNest(Tensor tensor) : DynamicNest(Kind::tensor, std::move(tensor)) {}
  DynamicNest(Variable variable) : DynamicNest(Kind::variable, std::move(variable)) {}
  DynamicNest(Component component) : DynamicNest(Kind::component, std::move(component)) {}

  static DynamicNest list(List items) { return {Kind::list, std::move(items)}; }
  static DynamicNest tuple(List items) { return {Kind::tuple, std::move(items)}; }
  static DynamicNest named_tuple(std::string type, const Fields& fields);
  static DynamicNest dict(Dict items) { return {Kind::dict, std::move(items)}; }
  /// One component a replica, not none.
  static DynamicNest per_replica(List components);
  static DynamicNest mirrored(List components);

  [[nodiscard]] Kind kind() const noexcept { return node_ ? node_->kind : Kind::null; }
  [[nodiscard]] bool is_distributed() const noexcept {
    return kind() == Kind::per_replica || kind() == Kind::mirrored;
  }

  /// What it holds; InvalidUsage if it is of another kind.
  [[nodiscard]] bool as_bool() const { return get<bool>("a boolean"); }
  [[nodiscard]] std::int64_t as_int() const { return get<std::int64_t>("an integer"); }
  [[nodiscard]] double as_double() const { return get<double>("a real number"); }
  [[nodiscard]] const std::string& as_string() const { return get<std::string>("a string"); }
  [[nodiscard]] const Tensor& as_tensor() const { return get<Tensor>("a tensor"); }
  [[nodiscard]] const Variable& as_variable() const { return get<Variable>("a variable"); }
  [[nodiscard]] const Component& as_component() const { return get<Component>("a component"); }
  /// Of lists, tuples, named tuples, and the components of what is distributed.
  [[nodiscard]] const List& items() const { return get<List>("a sequence"); }
  [[nodiscard]] const Dict& as_dict() const { return get<Dict>("a dict"); }
  /// An item; InvalidUsage if there is none.
  [[nodiscard]] const DynamicNest& operator[](std::size_t index) const;
  /// Of a dict or a named tuple.
  [[nodiscard]] const DynamicNest& at(const std::string& key) const;
  /// Of a named tuple.
  [[nodiscard]] const std::string& type_name() const;
  [[nodiscard]] const std::vector<std::string>& field_names() const;

  /// The same object: a copy of the other, the same tensor or the same variable; null is one.
  [[nodiscard]] bool same_as(const DynamicNest& other) const;
  /// Equal all through.
  friend bool operator==(const DynamicNest& a, const DynamicNest& b);

  /// A nest of the same kind with other items: of a list, a tuple, a named tuple or what is
  /// distributed.
  [[nodiscard]] DynamicNest with_items(List items) const;

 private:
  using Held = std::variant<bool, std::int64_t, double, std::string, Tensor, Variable, Component,
                            List, Dict>;
  struct Node {
    Kind kind;
    Held held;
    std::string type = {};                 // of a named tuple
    std::vector<std::string> fields = {};  // its field names
  };

  template <class T>
  DynamicNest(Kind kind, T held);
  template <class T>
  const T& get(const char* what) const;
  [[noreturn]] void not_of_kind(const char* what) const;

  std::shared_ptr<const Node> node_;
};

std::ostream& operator<<(std::ostream& out, const DynamicNest& nest);

enum class Wrap { per_replica, mirrored };
/// Whether leaves that are the same object on every replica are wrapped all the same.
enum class AlwaysWrap { no, yes };

/// One nest a replica becomes one nest of all. Containers go item by item and must have the same
/// shape everywhere (InvalidUsage). Leaves:
///   1. the same variable everywhere is that variable;
///   2. the same object everywhere is that object, unless AlwaysWrap::yes;
///   3. components of one variable are the variable; of different ones, InvalidUsage;
///   4. anything else is wrapped.
DynamicNest regroup(const std::vector<DynamicNest>& each, Wrap wrap = Wrap::per_replica,
                    AlwaysWrap always = AlwaysWrap::no);

/// What a replica sees of a nest: its component of what is distributed; variables as they are.
DynamicNest select(int replica, const DynamicNest& nest);
/// As select, for update(): InvalidUsage for what is not equal on all replicas, which is a
/// per-replica value or a sync-on-read variable.
DynamicNest select_mirrored(int replica, const DynamicNest& nest);

/// fn of every leaf, through the components of what is distributed, too. InvalidUsage for a
/// per-replica value inside a step function of several replicas: it sees one component only.
DynamicNest map_leaves(const std::function<DynamicNest(const DynamicNest&)>& fn,
                       const DynamicNest& nest);

template <class T>
DynamicNest::DynamicNest(Kind kind, T held)
    : node_(
          std::make_shared<const Node>(Node{kind, Held(std::in_place_type<T>, std::move(held))})) {}

template <class T>
const T& DynamicNest::get(const char* what) const {
  const T* held = node_ ? std::get_if<T>(&node_->held) : nullptr;
  if (held == nullptr) not_of_kind(what);
  return *held;
}

}  // namespace lockstep
