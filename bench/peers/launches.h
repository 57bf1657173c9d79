// How each contestant is started: launchers, tunings, addresses.
//
//   lockstep, lockstep_tls                            ours
//   ompi_default, ompi_sm, ompi_ucx, ompi_ring        Open MPI: as it comes; shared-memory
//                                                     collectives; UCX; ring in segments of 128 KiB
//   mpich                                             MPICH
//   gloo_ring, gloo_bcube, gloo_halving, gloo_chunked Gloo's algorithms
//   ceiling_cached, ceiling_around                    two processes streaming the same bytes
//   openssl                                           a bare TLS stream
#pragma once

#include <string>

#include "bench/peers/group.h"

namespace lockstep::bench::peers {

struct Surroundings {
  std::string programs;   // folder of the contestants' programs
  std::string directory;  // for sockets and shared files
  int ranks = 2;
  std::string network;  // prefix of the network namespaces; empty: one host
};

/// GroupFailed if there is no such contestant, or its program or launcher is missing.
Launch launch_of(const std::string& contestant, const Surroundings& surroundings);

}  // namespace lockstep::bench::peers
