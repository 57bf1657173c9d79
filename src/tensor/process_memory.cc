#include "lockstep/process_memory.h"

#include "sys/memory.h"
#include "tensor/placed_memory.h"

namespace lockstep {

void tune_process_memory() {
  sys::keep_freed_memory();
  tensor::PlacedMemory::place_gradients_of_this_process();
}

}  // namespace lockstep
