// A struct goes into batches once it names its members.
#include "lockstep/dataset.h"

using namespace lockstep;

struct Example {
  Tensor image, label;
#ifndef MISTAKE
  static auto lockstep_members() { return std::tuple(&Example::image, &Example::label); }
#endif
};

auto batches(const Dataset<Example>& examples) { return examples.batch(GlobalBatch{4}); }
