#include "lockstep/dynamic_nest.h"

#include <ATen/ops/equal.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "lockstep/detail/regroup.h"
#include "lockstep/error.h"
#include "lockstep/replica_context.h"
#include "strategy/core.h"

namespace lockstep {

using Kind = DynamicNest::Kind;

namespace {

constexpr std::array<std::string_view, 14> kKinds = {
    "null",          "a boolean",  "an integer",          "a real number",   "a string",
    "a tensor",      "a variable", "a component",         "a list",          "a tuple",
    "a named tuple", "a dict",     "a per-replica value", "a mirrored value"};

std::string_view name_of(Kind kind) { return kKinds[static_cast<std::size_t>(kind)]; }

bool is_sequence(Kind kind) {
  return kind == Kind::list || kind == Kind::tuple || kind == Kind::named_tuple;
}

bool equal_tensors(const Tensor& a, const Tensor& b) {
  if (!a.defined() || !b.defined()) return a.defined() == b.defined();
  return a.scalar_type() == b.scalar_type() && a.sizes() == b.sizes() && at::equal(a, b);
}

}  // namespace

DynamicNest DynamicNest::named_tuple(std::string type, const Fields& fields) {
  Node node{Kind::named_tuple, List(), std::move(type)};
  for (const auto& [name, item] : fields) {
    node.fields.push_back(name);
    std::get<List>(node.held).push_back(item);
  }
  DynamicNest nest;
  nest.node_ = std::make_shared<const Node>(std::move(node));
  return nest;
}

DynamicNest DynamicNest::per_replica(List components) {
  detail::check_component_count("PerReplica", components.size(), components.size());
  return {Kind::per_replica, std::move(components)};
}

DynamicNest DynamicNest::mirrored(List components) {
  detail::check_component_count("Mirrored", components.size(), components.size());
  return {Kind::mirrored, std::move(components)};
}

void DynamicNest::not_of_kind(const char* what) const {
  throw InvalidUsage(fmt::format("this nest is {}, not {}", name_of(kind()), what));
}

const DynamicNest& DynamicNest::operator[](std::size_t index) const {
  const List& all = items();
  if (index >= all.size()) {
    throw InvalidUsage(
        fmt::format("{} of {} items has no item {}", name_of(kind()), all.size(), index));
  }
  return all[index];
}

const DynamicNest& DynamicNest::at(const std::string& key) const {
  if (kind() == Kind::named_tuple) {
    const auto found = std::find(node_->fields.begin(), node_->fields.end(), key);
    if (found != node_->fields.end()) {
      return items()[static_cast<std::size_t>(found - node_->fields.begin())];
    }
  } else if (const Dict& dict = as_dict(); dict.contains(key)) {
    return dict.at(key);
  }
  throw InvalidUsage(fmt::format("{} has no '{}'", name_of(kind()), key));
}

const std::string& DynamicNest::type_name() const {
  if (kind() != Kind::named_tuple) not_of_kind("a named tuple");
  return node_->type;
}

const std::vector<std::string>& DynamicNest::field_names() const {
  if (kind() != Kind::named_tuple) not_of_kind("a named tuple");
  return node_->fields;
}

bool DynamicNest::same_as(const DynamicNest& other) const {
  if (node_ == other.node_) return true;
  if (kind() != other.kind()) return false;
  switch (kind()) {
    case Kind::tensor:
      return as_tensor().is_same(other.as_tensor());
    case Kind::variable:
      return as_variable().same_as(other.as_variable());
    case Kind::component:
      return as_component().is_same(other.as_component());
    default:
      return false;
  }
}

bool operator==(const DynamicNest& a, const DynamicNest& b) {
  if (a.same_as(b)) return true;
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Kind::null:
      return true;
    case Kind::boolean:
      return a.as_bool() == b.as_bool();
    case Kind::integer:
      return a.as_int() == b.as_int();
    case Kind::real:
      return a.as_double() == b.as_double();
    case Kind::string:
      return a.as_string() == b.as_string();
    case Kind::tensor:
      return equal_tensors(a.as_tensor(), b.as_tensor());
    case Kind::variable:
    case Kind::component:
      return false;
    case Kind::dict:
      return a.as_dict() == b.as_dict();
    case Kind::named_tuple:
      if (a.type_name() != b.type_name() || a.field_names() != b.field_names()) return false;
      break;
    case Kind::list:
    case Kind::tuple:
    case Kind::per_replica:
    case Kind::mirrored:
      break;
  }
  return a.items() == b.items();
}

DynamicNest DynamicNest::with_items(List items) const {
  static_cast<void>(this->items());
  DynamicNest nest;
  nest.node_ =
      std::make_shared<const Node>(Node{kind(), std::move(items), node_->type, node_->fields});
  return nest;
}

// --- regroup ---------------------------------------------------------------------------------

namespace {

struct Regrouping {
  Wrap wrap;
  AlwaysWrap always;

  DynamicNest operator()(const DynamicNest::List& each) const {
    const Kind kind = each.front().kind();
    if (is_sequence(kind)) return sequences(each);
    if (kind == Kind::dict) return dicts(each);
    return leaf(each);
  }

  DynamicNest sequences(const DynamicNest::List& each) const {
    const DynamicNest& first = each.front();
    const std::size_t size = first.items().size();
    for (std::size_t i = 1; i < each.size(); ++i) {
      check_kind(each, i);
      if (each[i].items().size() != size) {
        detail::nests_differ(fmt::format("{} of {} instead of {} items", name_of(first.kind()),
                                         each[i].items().size(), size),
                             static_cast<int>(i));
      }
      if (first.kind() == Kind::named_tuple && (each[i].type_name() != first.type_name() ||
                                                each[i].field_names() != first.field_names())) {
        detail::nests_differ(
            fmt::format("a named tuple {} instead of {}", each[i].type_name(), first.type_name()),
            static_cast<int>(i));
      }
    }
    DynamicNest::List items;
    for (std::size_t k = 0; k < size; ++k) {
      DynamicNest::List parts;
      for (const DynamicNest& nest : each) parts.push_back(nest.items()[k]);
      items.push_back((*this)(parts));
    }
    return first.with_items(std::move(items));
  }

  DynamicNest dicts(const DynamicNest::List& each) const {
    for (std::size_t i = 1; i < each.size(); ++i) {
      check_kind(each, i);
      if (each[i].as_dict().size() != each[0].as_dict().size()) {
        detail::nests_differ("other keys", static_cast<int>(i));
      }
    }
    DynamicNest::Dict items;
    for (const auto& [key, value] : each[0].as_dict()) {
      DynamicNest::List parts;
      for (std::size_t i = 0; i < each.size(); ++i) {
        const auto found = each[i].as_dict().find(key);
        if (found == each[i].as_dict().end()) {
          detail::nests_differ(fmt::format("no key '{}'", key), static_cast<int>(i));
        }
        parts.push_back(found->second);
      }
      items.emplace(key, (*this)(parts));
    }
    return DynamicNest::dict(std::move(items));
  }

  DynamicNest leaf(const DynamicNest::List& each) const {
    const DynamicNest& first = each.front();
    const bool same = std::all_of(each.begin(), each.end(),
                                  [&](const DynamicNest& nest) { return nest.same_as(first); });
    if (same && first.kind() == Kind::variable) return first;
    if (first.kind() == Kind::component) return container(each);
    if (same && always == AlwaysWrap::no) return first;
    return wrap == Wrap::per_replica ? DynamicNest::per_replica(each) : DynamicNest::mirrored(each);
  }

  static DynamicNest container(const DynamicNest::List& each) {
    const Variable& owner = each.front().as_component().variable();
    for (std::size_t i = 1; i < each.size(); ++i) {
      if (each[i].kind() != Kind::component || !each[i].as_component().variable().same_as(owner)) {
        detail::nests_differ(
            fmt::format("no component of variable {}, as replica 0 has", owner.name()),
            static_cast<int>(i));
      }
    }
    return owner;
  }

  static void check_kind(const DynamicNest::List& each, std::size_t i) {
    if (each[i].kind() == each[0].kind()) return;
    detail::nests_differ(
        fmt::format("{} instead of {}", name_of(each[i].kind()), name_of(each[0].kind())),
        static_cast<int>(i));
  }
};

/// Rebuilds a nest with fn(leaf) in place of every leaf; what is distributed is a leaf here.
DynamicNest rebuild(const DynamicNest& nest,
                    const std::function<DynamicNest(const DynamicNest&)>& fn) {
  if (is_sequence(nest.kind())) {
    DynamicNest::List items;
    for (const DynamicNest& item : nest.items()) items.push_back(rebuild(item, fn));
    return nest.with_items(std::move(items));
  }
  if (nest.kind() == Kind::dict) {
    DynamicNest::Dict items;
    for (const auto& [key, item] : nest.as_dict()) items.emplace(key, rebuild(item, fn));
    return DynamicNest::dict(std::move(items));
  }
  return fn(nest);
}

const DynamicNest& component_of(const DynamicNest& leaf, int replica) {
  const int size = static_cast<int>(leaf.items().size());
  if (replica < 0 || replica >= size) {
    detail::no_such_component(leaf.kind() == Kind::mirrored ? "Mirrored" : "PerReplica", replica,
                              size);
  }
  return leaf.items()[static_cast<std::size_t>(replica)];
}

}  // namespace

DynamicNest regroup(const std::vector<DynamicNest>& each, Wrap wrap, AlwaysWrap always) {
  if (each.empty()) throw InvalidUsage("regroup of no nests: give one a replica");
  return Regrouping{wrap, always}(each);
}

DynamicNest select(int replica, const DynamicNest& nest) {
  return rebuild(nest, [replica](const DynamicNest& leaf) {
    return leaf.is_distributed() ? component_of(leaf, replica) : leaf;
  });
}

DynamicNest select_mirrored(int replica, const DynamicNest& nest) {
  return rebuild(nest, [replica](const DynamicNest& leaf) {
    const bool differs = leaf.kind() == Kind::per_replica ||
                         (leaf.kind() == Kind::variable &&
                          leaf.as_variable().synchronization() == Synchronization::on_read);
    if (differs) {
      throw InvalidUsage(
          fmt::format("Expected value to be mirrored across replicas: {} is not; reduce it first",
                      leaf.kind() == Kind::variable
                          ? fmt::format("sync-on-read variable {}", leaf.as_variable().name())
                          : std::string("a per-replica value")));
    }
    return leaf.is_distributed() ? component_of(leaf, replica) : leaf;
  });
}

DynamicNest map_leaves(const std::function<DynamicNest(const DynamicNest&)>& fn,
                       const DynamicNest& nest) {
  return rebuild(nest, [&fn](const DynamicNest& leaf) {
    if (!leaf.is_distributed()) return fn(leaf);
    const ReplicaContext* replica = get_replica_context();
    if (leaf.kind() == Kind::per_replica && replica != nullptr &&
        replica->num_replicas_in_sync() > 1) {
      throw InvalidUsage(
          "a per-replica value is taken apart inside a step function: it has one component a "
          "replica; pass it to run() as an argument");
    }
    DynamicNest::List components;
    for (const DynamicNest& component : leaf.items()) {
      components.push_back(map_leaves(fn, component));
    }
    return leaf.with_items(std::move(components));
  });
}

// --- printing --------------------------------------------------------------------------------

namespace {

void print_items(std::ostream& out, const DynamicNest& nest, char open, char close) {
  out << open;
  for (std::size_t i = 0; i < nest.items().size(); ++i) {
    out << (i == 0 ? "" : ", ");
    if (nest.kind() == Kind::named_tuple) out << nest.field_names()[i] << '=';
    out << nest.items()[i];
  }
  out << close;
}

}  // namespace

std::ostream& operator<<(std::ostream& out, const DynamicNest& nest) {
  switch (nest.kind()) {
    case Kind::null:
      return out << "null";
    case Kind::boolean:
      return out << (nest.as_bool() ? "true" : "false");
    case Kind::integer:
      return out << nest.as_int();
    case Kind::real:
      return out << nest.as_double();
    case Kind::string:
      return out << '"' << nest.as_string() << '"';
    case Kind::tensor:
      detail::print(out, nest.as_tensor());
      return out;
    case Kind::variable:
      return out << nest.as_variable();
    case Kind::component:
      return out << nest.as_component().name();
    case Kind::list:
      print_items(out, nest, '[', ']');
      return out;
    case Kind::tuple:
      print_items(out, nest, '(', ')');
      return out;
    case Kind::named_tuple:
      out << nest.type_name();
      print_items(out, nest, '(', ')');
      return out;
    case Kind::per_replica:
      out << "PerReplica:";
      print_items(out, nest, '{', '}');
      return out;
    case Kind::mirrored:
      out << "Mirrored:";
      print_items(out, nest, '{', '}');
      return out;
    case Kind::dict:
      break;
  }
  const char* separator = "{";
  for (const auto& [key, item] : nest.as_dict()) {
    out << separator << '"' << key << "\": " << item;
    separator = ", ";
  }
  return out << (nest.as_dict().empty() ? "{}" : "}");
}

}  // namespace lockstep
