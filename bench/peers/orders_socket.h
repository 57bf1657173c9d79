// How a driver hears from the programs that it started: a socket they call, and their logs.
#pragma once

#include <chrono>
#include <string>

namespace lockstep::bench::peers {

/// A listening Unix socket of packets; throws std::system_error.
int listen_at(const std::string& path);
/// Until there is something to read. False when the time is over; throws Interrupted.
bool readable(int descriptor, std::chrono::steady_clock::time_point until);
/// The end of a file: what a program said last.
std::string tail(const std::string& path);

}  // namespace lockstep::bench::peers
