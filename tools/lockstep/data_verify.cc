// lockstep data count, lockstep data verify
#include <fmt/format.h>

#include "data.h"
#include "lockstep/error.h"
#include "lockstep/tfrecord.h"

namespace lockstep::tool {
namespace {

struct Verdict {
  std::uint64_t good = 0;  // records
  bool whole = true;
};

/// Prints what is corrupt.
Verdict verify(const std::string& file, Corrupt corrupt, DataProgress& progress) {
  Verdict verdict;
  const auto report = [&](const std::string& what) {
    progress.clear();
    fmt::print("{}\n", what);
    verdict.whole = false;
  };
  try {
    RecordReader reader(
        file, {.on_corrupt = corrupt == Corrupt::skip ? CorruptRecords::skip : CorruptRecords::fail,
               .on_skip = report});
    while (reader.next()) progress.show(file, ++verdict.good);
    const SkippedRecords& lost = reader.skipped();
    progress.clear();
    fmt::print("{}: {} good records", file, verdict.good);
    if (!verdict.whole) {
      fmt::print(", {} corrupt{}", lost.records, lost.rests > 0 ? ", then the rest is lost" : "");
    }
    fmt::print("\n");
  } catch (const DataError& error) {
    report(error.what());
  } catch (const SystemError& error) {
    progress.complain(error.what());
    verdict.whole = false;
  }
  return verdict;
}

}  // namespace

int verify_data(const Files& files, Corrupt corrupt) {
  DataProgress progress;
  std::uint64_t records = 0;
  std::size_t whole = 0;
  for (const std::string& file : files) {
    const Verdict verdict = verify(file, corrupt, progress);
    records += verdict.good;
    whole += verdict.whole ? 1 : 0;
  }
  fmt::print("{} of {} files are good, {} good records read\n", whole, files.size(), records);
  return whole == files.size() ? 0 : 1;
}

int count_data(const Files& files) {
  constexpr std::uint64_t kStep = 1000;  // records between two looks at the clock
  DataProgress progress;
  std::uint64_t total = 0;
  int code = 0;
  for (const std::string& file : files) {
    try {
      RecordReader reader(file);
      while (reader.skip(kStep) == kStep) progress.show(file, reader.position());
      progress.clear();
      fmt::print("{:>12}  {}\n", reader.position(), file);
      total += reader.position();
    } catch (const Error& error) {
      progress.complain(error.what());
      code = 1;
    }
  }
  if (files.size() > 1) fmt::print("{:>12}  total\n", total);
  return code;
}

}  // namespace lockstep::tool
