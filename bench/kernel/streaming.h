// The machine's own streaming loops: N streams in, one or N out, and as little arithmetic as
// possible in between. What memory allows, in other words.
//
// There are two kinds of store, and the faster one depends on size and processor; whoever compares
// with a loop compares with the faster one. Buffers are aligned to 64 bytes, counts to 256 bytes.
#pragma once

#include <cstddef>
#include <cstdint>

namespace lockstep::bench {

enum class Stores { cached, around_the_cache };

/// to[i] = from[0][i] + from[1][i] + ... for 2, 4 or 8 streams.
void stream_add(Stores stores, const float* const* from, int streams, float* to, std::size_t count);

/// to[0][i] = to[1][i] = ... = from[0][i] + from[1][i] + ... for 2, 4 or 8 streams in and as many
/// out.
void stream_all_reduce(Stores stores, const float* const* from, float* const* to, int streams,
                       std::size_t count);

/// to[i] = a[i] ^ b[i]: the traffic of a 16-bit sum with next to no arithmetic.
void stream_xor(Stores stores, const std::uint16_t* a, const std::uint16_t* b, std::uint16_t* to,
                std::size_t count);

}  // namespace lockstep::bench
