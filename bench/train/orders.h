// What the driver and a contestant's process say to each other, as words over a Unix socket that
// keeps messages apart (the Python contestant speaks them, too):
//
//   process -> driver   ready RANK PARAMETERS     it has its net and its data
//   driver -> process   steps COUNT
//   process -> driver   done LOSS                 after so many steps; the loss of the last one
//   driver -> process   quit
//
// A process that cannot go on says why on stderr and ends.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace lockstep::bench::train {

/// Trains so many steps and gives the loss of the last one on the first replica of this process.
using Steps = std::function<double(int count)>;

/// The process's part: says that it is ready and does what the driver at `path` asks for, until
/// told to quit or the driver is gone.
void carry_out_orders(const std::string& path, int rank, std::int64_t parameters,
                      const Steps& steps);

}  // namespace lockstep::bench::train
