// Threads of lockstep: named, joined by their owner, and never the end of the process. An exception
// that leaves the body is handed to `on_error` as a Status.
//
//   std::jthread pump = start_thread("ls-pump", [this](std::stop_token stop) { run(stop); },
//                                    [this](const Status& why) { generation_->fail(why); });
#pragma once

#include <functional>
#include <string>
#include <thread>

#include "base/status.h"

namespace lockstep {

/// The name is cut to the 15 characters Linux keeps. Throws SystemError if no thread can be had.
std::jthread start_thread(std::string name, std::function<void(std::stop_token)> body,
                          std::function<void(const Status&)> on_error);

/// Names the calling thread, for debuggers and /proc.
void name_this_thread(const std::string& name) noexcept;

}  // namespace lockstep
