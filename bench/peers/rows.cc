#include "bench/peers/rows.h"

#include <fmt/format.h>

#include "bench/peers/contestant.h"

namespace lockstep::bench::peers {
namespace {

using Names = std::vector<std::string>;

constexpr std::uint64_t kKiB = 1 << 10;
constexpr std::uint64_t kMiB = 1 << 20;

const Names kOpenMpi = {"ompi_default", "ompi_sm", "ompi_ucx", "ompi_ring"};
const Names kGloo = {"gloo_ring", "gloo_bcube", "gloo_halving", "gloo_chunked"};

std::string size_text(std::uint64_t bytes) {
  if (bytes >= kMiB) return fmt::format("{}MiB", bytes / kMiB);
  return bytes >= kKiB ? fmt::format("{}KiB", bytes / kKiB) : fmt::format("{}B", bytes);
}

std::vector<Entry> entries(std::initializer_list<Names> lists, std::initializer_list<Job> jobs) {
  std::vector<Entry> all;
  for (const Names& names : lists) {
    for (const std::string& name : names) {
      for (const Job& job : jobs) all.push_back({.contestant = name, .job = job});
    }
  }
  return all;
}

Job buffer(std::uint64_t bytes, MemoryKind memory = MemoryKind::caller) {
  return {.workload = Workload::buffer, .memory = memory, .bytes = bytes};
}

Row small_row(std::uint64_t bytes) {
  const std::string name = "shm_" + size_text(bytes);
  return {.name = name,
          .place = Place::shared_memory,
          .ours = {"lockstep", buffer(bytes)},
          .others = entries({kOpenMpi, {"mpich"}, kGloo}, {buffer(bytes)}),
          .requirements = {{name + "_vs_ompi", "ompi", 1.5}},
          .small = true};
}

Row private_row(std::uint64_t bytes, double required) {
  const std::string name = "shm_" + size_text(bytes) + "_private";
  Row row{.name = name,
          .place = Place::shared_memory,
          .ours = {"lockstep", buffer(bytes)},
          .others = entries({kOpenMpi, {"mpich"}, kGloo}, {buffer(bytes)}),
          .requirements = {{name + "_vs_ompi", "ompi", required}}};
  if (bytes == kMiB) {
    row.requirements.push_back({name + "_vs_mpich", "mpich", 2.5});
    row.requirements.push_back({name + "_vs_gloo", "gloo", 8});
  }
  return row;
}

/// Only we have memory that the peers can read in place.
Row segment_row(std::uint64_t bytes, double required) {
  const std::string name = "shm_" + size_text(bytes) + "_segment";
  Row row{.name = name,
          .place = Place::shared_memory,
          .ours = {"lockstep", buffer(bytes, MemoryKind::session)},
          .others = entries({kOpenMpi}, {buffer(bytes)}),
          .requirements = {{name + "_vs_ompi", "ompi", required}}};
  if (bytes == 64 * kMiB) {
    for (const char* ceiling : {"ceiling_cached", "ceiling_around"})
      row.others.push_back({ceiling, buffer(bytes)});
    row.requirements.push_back({name + "_vs_ceiling", "ceiling", 0.80});
  }
  return row;
}

Row resnet50_row() {
  const Job one_by_one{.workload = Workload::resnet50_one_by_one};
  const Job buckets{.workload = Workload::resnet50_buckets};
  return {
      .name = "resnet50_segment",
      .place = Place::shared_memory,
      .ours = {"lockstep", {.workload = Workload::resnet50_batch, .memory = MemoryKind::session}},
      .others = entries({kOpenMpi, kGloo}, {one_by_one, buckets}),
      .requirements = {{"resnet50_segment_vs_ompi", "ompi", 2.2},
                       {"resnet50_segment_vs_gloo", "gloo", 9}}};
}

Row crowded_row(std::uint64_t bytes, double required) {
  const std::string name = "over4_" + size_text(bytes);
  return {.name = name,
          .place = Place::crowded,
          .ours = {"lockstep", buffer(bytes)},
          .others = entries({kOpenMpi}, {buffer(bytes)}),
          .requirements = {{name + "_vs_ompi", "ompi", required}},
          .small = bytes <= 4 * kKiB};
}

const Names kOverNetwork = {"ompi_default", "ompi_ring"};

Row network_row(std::uint64_t bytes, double required) {
  const std::string name = "tcp_" + size_text(bytes);
  Row row{.name = name,
          .place = Place::network,
          .ours = {"lockstep", buffer(bytes)},
          .others = entries({kOverNetwork, kGloo}, {buffer(bytes)}),
          .requirements = {{name + "_vs_ompi", "ompi", required}}};
  if (bytes == 64 * kMiB) row.requirements.push_back({name + "_vs_gloo", "gloo", 1.1});
  return row;
}

Row encrypted_row() {
  return {.name = "tls_64MiB",
          .place = Place::network,
          .ours = {"lockstep_tls", buffer(64 * kMiB)},
          .others = {{"openssl", buffer(64 * kMiB)}},
          .requirements = {{"tls_64MiB_vs_openssl_stream", "openssl", 0.80}}};
}

Row gigabit_row() {
  Row row{.name = "wire_1gbit",
          .place = Place::network,
          .ours = {"lockstep", buffer(16 * kMiB)},
          .others =
              entries({kOverNetwork, {"gloo_ring", "gloo_halving"}, {kLine}}, {buffer(16 * kMiB)}),
          .requirements = {{"wire_1gbit_goodput", kLine, 0.97}}};
  row.shaped = true;
  return row;
}

}  // namespace

std::string Entry::family() const { return contestant.substr(0, contestant.find('_')); }

std::string Entry::label() const {
  switch (job.workload) {
    case Workload::buffer:
      return contestant + (job.memory == MemoryKind::session ? " (segment)" : "");
    case Workload::resnet50_one_by_one:
      return contestant + " (one by one)";
    case Workload::resnet50_buckets:
      return contestant + " (4 MiB buckets)";
    case Workload::resnet50_batch:
      return contestant + " (one batch)";
  }
  return contestant;
}

std::size_t bytes_of(const Job& job) {
  std::size_t bytes = 0;
  for (const std::size_t count : pieces_of(job)) bytes += count * sizeof(float);
  return bytes;
}

std::vector<Row> all_rows(const std::string& ours) {
  std::vector<Row> rows = {
      small_row(4),
      small_row(256),
      small_row(4 * kKiB),
      private_row(64 * kKiB, 1.6),
      private_row(kMiB, 1.6),
      private_row(16 * kMiB, 1.6),
      private_row(64 * kMiB, 1.5),
      segment_row(64 * kKiB, 2.5),
      segment_row(kMiB, 3.0),
      segment_row(16 * kMiB, 3.0),
      segment_row(64 * kMiB, 2.2),
      resnet50_row(),
      crowded_row(4, 1.3),
      crowded_row(kMiB, 1.5),
      network_row(64 * kKiB, 1.2),
      network_row(16 * kMiB, 1.0),
      network_row(64 * kMiB, 1.05),
      encrypted_row(),
      gigabit_row(),
  };
  if (ours.empty()) return rows;
  for (Row& row : rows) {
    row.ours.contestant = ours;
    std::erase_if(row.others, [&](const Entry& entry) { return entry.contestant == ours; });
  }
  return rows;
}

}  // namespace lockstep::bench::peers
