// Why a step function cannot be called with what run() gives it, in one sentence of the compiler
// that names the argument. Without this the compiler lists everything that it tried.
#pragma once

#include <cstddef>
#include <type_traits>
#include <utility>

namespace lockstep {
class ReplicaContext;
}  // namespace lockstep

namespace lockstep::detail {

template <class... P>
struct Parameters {
  static constexpr std::size_t count = sizeof...(P);
};

template <class... P>
Parameters<P...> without_context(Parameters<P...>);
template <class... P>
Parameters<P...> without_context(Parameters<ReplicaContext&, P...>);

template <class R, class... P>
Parameters<P...> parameters_of(R (*)(P...));
template <class R, class C, class... P>
Parameters<P...> parameters_of(R (C::*)(P...));
template <class R, class C, class... P>
Parameters<P...> parameters_of(R (C::*)(P...) const);

/// What a function takes besides the context; nothing is known of one with several signatures.
template <class F>
auto step_parameters() {
  if constexpr (requires { parameters_of(&F::operator()); }) {
    return decltype(without_context(parameters_of(&F::operator()))){};
  } else if constexpr (requires(F & fn) { parameters_of(&fn); }) {
    return decltype(without_context(parameters_of(std::declval<F*>()))){};
  }
}

/// Position of the first parameter that its argument does not convert to, from 1; 0: none.
template <class... P, class... Given>
constexpr std::size_t first_misfit(Parameters<P...>, Parameters<Given...>) {
  std::size_t position = 0;
  std::size_t found = 0;
  ((++position, found = found == 0 && !std::is_convertible_v<Given, P> ? position : found), ...);
  return found;
}

template <class F, class... Given>
void refuse_step_arguments() {
  using Taken = decltype(step_parameters<F>());
  if constexpr (std::is_void_v<Taken>) {
    static_assert(sizeof(F) == 0,
                  "lockstep: the step function cannot be called with these arguments: it takes "
                  "([ReplicaContext&,] args...), where a PerReplica<T> arrives as const T&, a "
                  "Mirrored<T> as Agreed<T>, and what all replicas share is const");
  } else if constexpr (Taken::count > sizeof...(Given)) {
    constexpr std::size_t kLacks = sizeof...(Given) + 1;
    static_assert(kLacks != 1,
                  "lockstep: the step function cannot be called with these arguments: it takes "
                  "another number of them than run() gives it: its first parameter (after "
                  "ReplicaContext&) gets none. Give one for each parameter: run(fn, a, b)");
    static_assert(kLacks != 2,
                  "lockstep: the step function cannot be called with these arguments: it takes "
                  "another number of them than run() gives it: its second parameter (after "
                  "ReplicaContext&) gets none. Give one for each parameter: run(fn, a, b)");
    static_assert(kLacks != 3,
                  "lockstep: the step function cannot be called with these arguments: it takes "
                  "another number of them than run() gives it: its third parameter (after "
                  "ReplicaContext&) gets none. Give one for each parameter: run(fn, a, b)");
    static_assert(kLacks <= 3,
                  "lockstep: the step function cannot be called with these arguments: it takes "
                  "another number of them than run() gives it: a parameter after the third gets "
                  "none. Give one for each parameter: run(fn, a, b)");
  } else if constexpr (Taken::count < sizeof...(Given)) {
    constexpr std::size_t kSurplus = Taken::count + 1;
    static_assert(
        kSurplus != 1,
        "lockstep: the step function cannot be called with these arguments: it takes "
        "another number of them than run() gives it: no parameter takes the first argument "
        "of run(). Take each of them: [](ReplicaContext&, const A&, const B&) {...}");
    static_assert(kSurplus != 2,
                  "lockstep: the step function cannot be called with these arguments: it takes "
                  "another number of them than run() gives it: no parameter takes the second "
                  "argument of run(). Take each of them: [](ReplicaContext&, const A&, const B&) "
                  "{...}");
    static_assert(
        kSurplus != 3,
        "lockstep: the step function cannot be called with these arguments: it takes "
        "another number of them than run() gives it: no parameter takes the third argument "
        "of run(). Take each of them: [](ReplicaContext&, const A&, const B&) {...}");
    static_assert(
        kSurplus <= 3,
        "lockstep: the step function cannot be called with these arguments: it takes "
        "another number of them than run() gives it: no parameter takes an argument after "
        "the third. Take each of them: [](ReplicaContext&, const A&, const B&) {...}");
  } else {
    constexpr std::size_t kWrong = first_misfit(Taken{}, Parameters<Given...>{});
    static_assert(kWrong != 1,
                  "lockstep: the step function cannot be called with these arguments: its first "
                  "parameter (after ReplicaContext&) does not take the first argument of run(): a "
                  "PerReplica<T> arrives as const T&, a Mirrored<T> as Agreed<T>, a Model<Net> as "
                  "Net&, a DistributedOptimizer as Optimizer&, and what replicas share is const");
    static_assert(kWrong != 2,
                  "lockstep: the step function cannot be called with these arguments: its second "
                  "parameter (after ReplicaContext&) does not take the second argument of run(): a "
                  "PerReplica<T> arrives as const T&, a Mirrored<T> as Agreed<T>, a Model<Net> as "
                  "Net&, a DistributedOptimizer as Optimizer&, and what replicas share is const");
    static_assert(kWrong != 3,
                  "lockstep: the step function cannot be called with these arguments: its third "
                  "parameter (after ReplicaContext&) does not take the third argument of run(): a "
                  "PerReplica<T> arrives as const T&, a Mirrored<T> as Agreed<T>, a Model<Net> as "
                  "Net&, a DistributedOptimizer as Optimizer&, and what replicas share is const");
    static_assert(kWrong != 4,
                  "lockstep: the step function cannot be called with these arguments: its fourth "
                  "parameter (after ReplicaContext&) does not take the fourth argument of run(): a "
                  "PerReplica<T> arrives as const T&, a Mirrored<T> as Agreed<T>, a Model<Net> as "
                  "Net&, a DistributedOptimizer as Optimizer&, and what replicas share is const");
    static_assert(kWrong != 5,
                  "lockstep: the step function cannot be called with these arguments: its fifth "
                  "parameter (after ReplicaContext&) does not take the fifth argument of run(): a "
                  "PerReplica<T> arrives as const T&, a Mirrored<T> as Agreed<T>, a Model<Net> as "
                  "Net&, a DistributedOptimizer as Optimizer&, and what replicas share is const");
    static_assert(kWrong != 6,
                  "lockstep: the step function cannot be called with these arguments: its sixth "
                  "parameter (after ReplicaContext&) does not take the sixth argument of run(): a "
                  "PerReplica<T> arrives as const T&, a Mirrored<T> as Agreed<T>, a Model<Net> as "
                  "Net&, a DistributedOptimizer as Optimizer&, and what replicas share is const");
    static_assert(kWrong >= 1 && kWrong <= 6,
                  "lockstep: the step function cannot be called with these arguments: a parameter "
                  "after the sixth does not take its argument of run(): a PerReplica<T> arrives as "
                  "const T&, a Mirrored<T> as Agreed<T>, a Model<Net> as Net&, a "
                  "DistributedOptimizer as Optimizer&, and what replicas share is const");
  }
}

}  // namespace lockstep::detail
