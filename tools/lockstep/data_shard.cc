// lockstep data shard
#include <fmt/format.h>

#include <filesystem>
#include <system_error>

#include "data.h"
#include "lockstep/error.h"
#include "lockstep/tfrecord.h"
#include "names.h"

namespace lockstep::tool {
namespace {

namespace fs = std::filesystem;

constexpr int kMostShards = 99'999;  // five digits in the name

Compression parse_compression(const std::string& text) {
  if (text == "none") return Compression::none;
  if (text == "gzip") return Compression::gzip;
  if (text == "zlib") return Compression::zlib;
  throw UsageError(fmt::format("--compression is \"{}\"; there are none, gzip, zlib", text));
}

/// The new files. They have their names when keep() has succeeded; else nothing of them is left.
class Shards {
 public:
  Shards(const ShardOptions& options) {
    const RecordWriterOptions writing{.compression = parse_compression(options.compression)};
    for (int shard = 0; shard < options.into; ++shard) {
      names_.push_back(fmt::format("{}-{:05}-of-{:05}", options.output, shard, options.into));
      if (fs::exists(names_.back())) {
        throw SystemError(names_.back() + " exists; remove it or choose another --output",
                          Code::already_exists);
      }
    }
    try {
      for (const std::string& name : names_) writers_.emplace_back(partial(name), writing);
    } catch (...) {
      discard();
      throw;
    }
  }
  ~Shards() { discard(); }
  Shards(const Shards&) = delete;
  Shards& operator=(const Shards&) = delete;

  void write(std::string_view record) {
    writers_[next_].write(record);
    next_ = (next_ + 1) % writers_.size();
  }

  void keep() {
    for (RecordWriter& writer : writers_) writer.close();
    for (const std::string& name : names_) fs::rename(partial(name), name);
    writers_.clear();
  }

 private:
  static std::string partial(const std::string& name) { return name + ".partial"; }

  void discard() noexcept {
    for (std::size_t i = 0; i < writers_.size(); ++i) {
      std::error_code ignored;
      fs::remove(partial(names_[i]), ignored);
    }
    writers_.clear();
  }

  std::vector<std::string> names_;
  std::vector<RecordWriter> writers_;
  std::size_t next_ = 0;
};

}  // namespace

int shard_data(const ShardOptions& options) {
  if (options.into < 1 || options.into > kMostShards) {
    throw UsageError(fmt::format("--into is {}; it is 1 to {}", options.into, kMostShards));
  }
  DataProgress progress;
  Shards shards(options);
  const RecordReaderOptions reading{
      .on_corrupt = options.corrupt == Corrupt::skip ? CorruptRecords::skip : CorruptRecords::fail,
      .on_skip = [&](const std::string& what) { progress.complain(what); }};
  std::uint64_t records = 0;
  for (const std::string& file : options.files) {
    RecordReader reader(file, reading);
    while (const auto record = reader.next()) {
      shards.write(*record);
      progress.show(file, ++records);
    }
  }
  shards.keep();
  progress.clear();
  fmt::print("{} records of {} files are now in {} files: {}-*-of-{:05}\n", records,
             options.files.size(), options.into, options.output, options.into);
  return 0;
}

}  // namespace lockstep::tool
