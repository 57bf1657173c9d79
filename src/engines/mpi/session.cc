// mpi_session: MPI is initialised, the ranks tell each other where they are, the group is made.
#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "coll/engines.h"
#include "coll/session_impl.h"
#include "engines/mpi/carrier.h"
#include "engines/mpi/error.h"
#include "lockstep/coll/mpi.h"
#include "transport/own_failure.h"

namespace lockstep::mpi {
namespace {

struct Introduction {
  std::int32_t replicas = 1;
  std::array<char, MPI_MAX_PROCESSOR_NAME> host{};
};

/// What every rank says of itself.
std::vector<Introduction> introduce(Job& job, int replicas, std::chrono::nanoseconds timeout) {
  Runtime& runtime = job.runtime();
  // After a Timeout MPI may still write there.
  auto all = std::make_unique<std::vector<Introduction>>(static_cast<std::size_t>(runtime.size()));
  Introduction& mine = (*all)[static_cast<std::size_t>(runtime.rank())];
  mine.replicas = replicas;
  try {
    runtime.complete(
        [&](MPI_Request* request) {
          int length = 0;
          MPI_Get_processor_name(mine.host.data(), &length);
          return MPI_Iallgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, all->data(),
                                sizeof(Introduction), MPI_BYTE, job.world(), request);
        },
        "MPI_Iallgather", timeout);
  } catch (...) {
    static_cast<void>(all.release());  // NOLINT(bugprone-unused-return-value)
    throw;
  }
  return std::move(*all);
}

coll::Session form_group(const coll::SessionOptions& given, std::chrono::nanoseconds timeout) {
  coll::SessionOptions options = given;
  options.engine = coll::Engine::automatic;  // this is it
  coll::check_session_options(options);
  auto job = Job::form(timeout);
  const std::vector<Introduction> ranks = introduce(*job, options.replicas, timeout);
  coll::GroupSpec spec;
  for (const Introduction& rank : ranks) {
    const auto same_host = [&](const Introduction& other) { return other.host == rank.host; };
    const auto first = std::find_if(ranks.begin(), ranks.end(), same_host);
    spec.members.push_back(static_cast<int>(spec.members.size()));
    spec.replicas.push_back(rank.replicas);
    spec.hosts.push_back(static_cast<int>(first - ranks.begin()));
  }
  coll::MakeCarrier carriers =
      [job](const coll::GroupSpec& group, int rank,
            const coll::SessionOptions& its) -> std::unique_ptr<coll::Carrier> {
    return std::make_unique<MpiCarrier>(job, group, rank, its);
  };
  const int rank = job->runtime().rank();
  return coll::Session(std::make_shared<coll::Session::Impl>(job, std::move(carriers),
                                                             std::move(spec), rank, options));
}

coll::Session form(const coll::SessionOptions& given, std::chrono::nanoseconds timeout) {
  const int rank = Runtime::get().rank();
  return transport::naming_shortages(rank, [&] { return form_group(given, timeout); });
}

/// Linking this file makes the engine known to join().
[[maybe_unused]] const bool kProvided = [] {
  coll::provide_engine(coll::Engine::mpi, &form);
  return true;
}();

}  // namespace
}  // namespace lockstep::mpi

namespace lockstep::coll {

Session mpi_session(const MpiOptions& options) {
  return mpi::form(options.options, options.timeout);
}

}  // namespace lockstep::coll

/// Programs that only call join() name no function of the engine; the link option of lockstep::mpi
/// asks for this one, and so for this file.
extern "C" void lockstep_mpi_engine() {}
