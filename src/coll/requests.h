// From a call of the public interface to a Call: every check that can be made before anything is
// sent. All throw InvalidUsage that says which argument, what it is and what it should be.
#pragma once

#include "coll/call.h"
#include "lockstep/coll/session.h"

namespace lockstep::coll {

/// Who is calling, as far as checks need it.
struct Caller {
  int rank = 0;
  int size = 1;
  int replicas = 1;  // of this rank
};

/// After the others: what options allow depends on the call.
void fill_options(Call& call, const CallOptions& options, Here here);
void fill_all_reduce(Call& call, const Caller& caller, Op op, const Inputs& inputs, Buffer output);
void fill_reduce(Call& call, const Caller& caller, Op op, const Inputs& inputs, Buffer output,
                 Root root);
void fill_broadcast(Call& call, const Caller& caller, Buffer buffer, Root root);
void fill_all_gather(Call& call, const Caller& caller, ConstBuffer input, Buffer output,
                     Counts counts);
void fill_reduce_scatter(Call& call, const Caller& caller, Op op, const Inputs& inputs,
                         Buffer output, Counts counts);
void fill_gather(Call& call, const Caller& caller, ConstBuffer input, Buffer output, Root root,
                 Counts counts);
void fill_scatter(Call& call, const Caller& caller, ConstBuffer input, Buffer output, Root root,
                  Counts counts);
void fill_all_to_all(Call& call, const Caller& caller, ConstBuffer input, Buffer output);
void fill_barrier(Call& call);
// On the two-rank group of the messages from one rank to another: rank 0 sends, rank 1 receives.
void fill_send(Call& call, ConstBuffer input);
void fill_receive(Call& call, Buffer output);

/// Throws unless `rank` is one of the group.
void check_peer(const Caller& caller, int rank, const char* argument);

}  // namespace lockstep::coll
