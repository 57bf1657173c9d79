// ReadBytes and ReadAt: where a parser of this layer gets its bytes from. A function instead of a
// class, so that a file, a gz stream, a member of an archive and a test's array all fit.
//
//   IdxReader images(bytes_of(array), "train-images");
//
// Ownership: the function keeps what it captures; bytes_of() and window_of() only look at memory
// that somebody else keeps. Thread rule: one thread a function.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace lockstep::format {

/// The next bytes of a stream: as many as it has at hand, 0 only at the end (or for no memory).
using ReadBytes = std::function<std::size_t(std::span<std::byte> into)>;

/// The bytes from `offset` on: as many as there are, fewer than asked for only at the end.
using ReadAt = std::function<std::size_t(std::uint64_t offset, std::span<std::byte> into)>;

/// Calls `read` until `into` is full or the stream ends; how many bytes came.
std::size_t read_fully(const ReadBytes& read, std::span<std::byte> into);

/// Up to `bytes` bytes. Memory grows with what arrives, not with what was asked for: a length from
/// a damaged file costs no more than the file holds.
std::vector<std::byte> read_growing(const ReadBytes& read, std::uint64_t bytes);

/// A stream over memory, and the same memory at random.
ReadBytes bytes_of(std::span<const std::byte> memory);
ReadAt window_of(std::span<const std::byte> memory);

}  // namespace lockstep::format
