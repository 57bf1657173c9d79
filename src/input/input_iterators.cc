#include "lockstep/input_iterators.h"

#include <fmt/format.h>

namespace lockstep::detail {

void not_initialized() {
  throw InvalidUsage("get_next() of an iterator that was not initialized; call initialize() first",
                     Code::failed_precondition);
}

void only_once() {
  throw InvalidUsage(
      "initialize() of a one-shot iterator; take make_initializable_iterator() to start anew");
}

void cannot_make_dataset_iterator(const InvalidUsage& why) {
  throw InvalidUsage(fmt::format("make_dataset_iterator: {}. For input that every replica takes "
                                 "whole there is make_input_fn_iterator()",
                                 why.what()),
                     why.code());
}

void require_per_worker(InputReplicationMode mode) {
  if (mode != InputReplicationMode::per_worker) {
    throw InvalidUsage("make_input_fn_iterator: only InputReplicationMode::per_worker");
  }
}

}  // namespace lockstep::detail
