#include "plan_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <set>
#include <vector>

namespace lockstep::tool {
namespace {

using plan::Instruction;
using plan::Place;
using plan::Plan;
using plan::Verb;

const char* name_of(plan::Buffer buffer) {
  switch (buffer) {
    case plan::Buffer::input:
      return "input";
    case plan::Buffer::output:
      return "output";
    case plan::Buffer::scratch:
      return "scratch";
    case plan::Buffer::partial:
      return "partial";
    case plan::Buffer::slot:
      return "slot";
  }
  return "?";
}

/// Prints the places of one instruction.
class Writer {
 public:
  Writer(const Plan& plan, const Instruction& code, int rank)
      : plan_(plan), code_(code), rank_(rank) {}

  [[nodiscard]] std::string line() const {
    switch (code_.verb) {
      case Verb::send:
        return fmt::format("send     {} to rank {}", place(plan_.sources_of(code_)[0]), code_.peer);
      case Verb::receive:
        return fmt::format("receive  {} from rank {}", place(plan_.targets_of(code_)[0]),
                           code_.peer);
      case Verb::drain:
        return fmt::format("drain    what was sent to rank {}", code_.peer);
      case Verb::publish:
        return fmt::format("publish  stage {}", code_.stage);
      case Verb::await:
        return fmt::format("await    stage {} of rank {}", code_.stage, code_.peer);
      case Verb::reduce:
        return fmt::format("reduce   {} = {}{}", targets(), sum(),
                           code_.finish ? "  (complete)" : "");
      case Verb::copy:
        return fmt::format("copy     {} = {}", targets(), place(plan_.sources_of(code_)[0]));
    }
    return "?";
  }

 private:
  [[nodiscard]] std::string place(const Place& place) const {
    const std::string owner = place.rank == rank_ ? "" : fmt::format("rank {}'s ", place.rank);
    const std::string which = place.buffer == plan::Buffer::input && place.index > 0
                                  ? fmt::format("#{}", place.index)
                                  : "";
    return fmt::format("{}{}{}[{}..{})", owner, name_of(place.buffer), which, place.offset,
                       place.offset + code_.count);
  }

  [[nodiscard]] std::string targets() const {
    std::vector<std::string> names;
    for (const Place& target : plan_.targets_of(code_)) names.push_back(place(target));
    return fmt::format("{}", fmt::join(names, ", "));
  }

  /// The sum with the brackets that its merges mean.
  [[nodiscard]] std::string sum() const {
    struct Term {
      std::string text;
      bool compound = false;
    };
    const auto bracketed = [](const Term& term) {
      return term.compound ? "(" + term.text + ")" : term.text;
    };
    std::vector<Term> stack;
    const auto sources = plan_.sources_of(code_);
    const auto merges = plan_.merges_of(code_);
    for (std::size_t i = 0; i < sources.size(); ++i) {
      stack.push_back({place(sources[i])});
      for (int merge = 0; merge < merges[i] && stack.size() > 1; ++merge) {
        const Term right = std::move(stack.back());
        stack.pop_back();
        stack.back() = {bracketed(stack.back()) + " + " + bracketed(right), true};
      }
    }
    return stack.empty() ? "" : stack.back().text;
  }

  const Plan& plan_;
  const Instruction& code_;
  int rank_;
};

}  // namespace

std::string text_of(const Plan& plan, int rank) {
  std::string text;
  for (std::size_t i = 0; i < plan.code.size(); ++i) {
    text += fmt::format("{:>6}  {}\n", i, Writer(plan, plan.code[i], rank).line());
  }
  return text;
}

Traffic traffic_of(const Plan& plan, DType dtype) {
  Traffic traffic;
  std::set<int> peers;
  for (const Instruction& code : plan.code) {
    if (code.verb == Verb::send || code.verb == Verb::receive) peers.insert(code.peer);
    if (code.verb != Verb::send) continue;
    const bool partial = plan.sources_of(code)[0].buffer == plan::Buffer::partial;
    ++traffic.messages;
    traffic.bytes += code.count * size_of(partial ? accumulator_of(dtype) : dtype);
  }
  traffic.peers = peers.size();
  return traffic;
}

}  // namespace lockstep::tool
