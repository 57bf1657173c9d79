// libtorch's default CPU generator, made to stand for another one on a thread.
//
// torch::manual_seed(), and seeding, saving and restoring the default generator, do not go through
// the dispatcher: they call virtual functions of the one object that all threads share. So that
// object is replaced, when the program is loaded, by one of a class of ours. It is libtorch's own
// generator with the same numbers, except on a thread that has set another: there its seed and its
// state are those of the other.
//
//   const at::Generator* outer = exchange_thread_generator(&mine);
//   torch::manual_seed(3);                             // seeds `mine`
//   exchange_thread_generator(outer);
//
// Drawing is not redirected here: operations are given a generator by ReplicaGenerator. Why it is
// done this way: docs/decisions/0012-the-default-generator-stands-for-the-replicas.md.
//
// Threads: what is set is of the calling thread.
#pragma once

#include <ATen/core/Generator.h>

namespace lockstep::tensor {

/// What the default generator stands for on this thread; nullptr: for itself.
const at::Generator* thread_generator() noexcept;
/// Sets it, and gives what was set before. The generator must live until it is set back.
const at::Generator* exchange_thread_generator(const at::Generator* generator) noexcept;

/// Whether it is the default generator, which an operation may also be given by hand.
bool is_default_generator(const at::Generator& generator) noexcept;

/// Called at load. Does nothing if there is a copy of the default generator already (a Python
/// module that was loaded first): that copy must stay the default one. False then.
bool replace_default_generator();

}  // namespace lockstep::tensor
