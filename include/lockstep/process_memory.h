// tune_process_memory: how the whole process allocates memory, set for training.
//
//   int main(int argc, char** argv) {
//     lockstep::tune_process_memory();
//     ...
//
// Nothing in lockstep needs it and nothing calls it: without it steps have the same bits and take
// longer, most of all those of several threads with large parameters. docs/process-memory.md has
// the figures.
#pragma once

namespace lockstep {

/// Changes two things for as long as the process lives:
/// 1. glibc's malloc keeps what is freed instead of giving it back to the system (mallopt). Memory
///    of a peak stays with the process. Left out if the environment sets malloc's thresholds
///    (docs/environment.md), or if the allocator is not glibc's.
/// 2. libtorch's CPU allocator is replaced (c10::SetCPUAllocator) by one that passes requests on,
///    with one exception: backward passes in step functions compute large gradients where other
///    workers of this host read them, or in blocks that are kept for the next step.
///
/// Call it at the start of main, before other threads use tensors: libtorch does not lock its
/// allocator. A second call does nothing.
void tune_process_memory();

}  // namespace lockstep
