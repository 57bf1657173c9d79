// Scenarios: what a rank does once it has joined, by one line of words.
//
//   exercise own | exercise session   every collective; one line for each result
//   work SECONDS COUNT [session]      all-reduces of COUNT floats until the time is over
//   fail COUNT                        all-reduces of COUNT floats of the session's memory until one
//                                     throws; then whether anybody still writes there
//   train STEPS COUNT                 a fixed number of steps that build on each other; when each
//                                     was done, and a digest of the result
//   scale SECONDS [VICTIM]            the first operations of a large group and what they took, what
//                                     a rank costs while nobody does anything for so long, and what
//                                     it holds; then all wait for the victim in a barrier until it
//                                     is killed, or close if there is none
//   idle SECONDS                      joins and only looks whether all is well
//   rest SECONDS                      joins and does nothing
//   share BYTES                       every two ranks exchange so many; how much of the host's
//                                     shared memory this one has used
//   splits ROUNDS [keep]              splits, sends a message in the subgroup and closes it, again
//                                     and again; keep: closes all subgroups in the end, but keeps
//                                     their sessions; memory that the host's ranks share, and that
//                                     of the own heap, in KiB
//   unasked                           messages that are received only when their sender has waited
//   alternate COUNT                   sums from memory of its own and of the session in turns, with
//                                     as many replicas as the rank's number, and one
//   slices COUNT                      sums of so many floats, whole and in slices by threads at the
//                                     same time, by rank r with r + 1 replicas
//   mismatch RANK                     that rank asks for another count
//   described RANK                    the same, and all say in words of their own for what
//   leave RANK [half | all | message | others]
//                                     that rank closes its session early; half: that of a subgroup
//                                     only; all: that of a subgroup, too, in which the others wait
//                                     for it; message: the others wait for one of it; others:
//                                     they go on in a subgroup without it
//   part RANK send RANK | part RANK receive RANK
//                                     the first closes its session of a subgroup of all, in which
//                                     the second sends it a message, or waits for one of it
//   stuck RANK [SIZE]                 that rank never comes to an operation of all, or of a
//   subgroup
//                                     of the first so many, and only looks whether all is well
//   fork RANK                         that rank forks a child that uses and closes the session,
//                                     then all work
//   orphan RANK                       that rank forks a child that holds its descriptors
//   late RANK                         all but that rank close at once; it waits for its end
//   abort RANK | throw RANK | exit RANK
//       in the middle of work that rank aborts, throws, or ends with an operation under way
//   unread RANK stderr | unread RANK sink
//                                     nobody reads that rank's log: its standard error is a full
//                                     pipe, or its sink blocks for ever; all look whether all is
//                                     well for 4 s
//   mute RANK [idle | late]           that rank closes its direction of every connection; then all
//                                     work, only look whether all is well, or close
#pragma once

#include <cstdint>
#include <string>

#include "lockstep/coll.h"

namespace lockstep::processes {

/// InvalidUsage for a scenario that is not in the list.
void play(coll::Session& group, const std::string& scenario);

/// Closes this process's direction of every connection.
void mute();
/// A line on standard output.
void say(const std::string& line);
/// Of the clock that all processes of a machine share.
std::int64_t now_us();

}  // namespace lockstep::processes
