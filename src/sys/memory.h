// The C library's allocator, as far as a training process wants it otherwise.
#pragma once

namespace lockstep::sys {

/// Lets the allocator keep memory that was freed instead of giving it back to the system. A
/// training step allocates and frees the same hundreds of megabytes each time: given back in
/// between, every page is faulted in and zeroed again, which takes a fifth of a small net's step.
/// The price: memory of a peak stays with the process.
///
/// For the whole process and as long as it lives, so only where the user has asked for it
/// (tune_process_memory); once; does nothing if the user has set the allocator's thresholds in the
/// environment, or if the allocator is not glibc's.
void keep_freed_memory() noexcept;

}  // namespace lockstep::sys
