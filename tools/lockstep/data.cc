// lockstep data: looks into data files, counts, verifies and redistributes their records.
#include "data.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <memory>
#include <utility>

#include "commands.h"

namespace lockstep::tool {
namespace {

struct Options {
  Files files;
  std::uint64_t show = 3;
  bool skip_corrupt = false;
  ShardOptions shard;
};

using Commands = std::vector<Command>;
using Shared = std::shared_ptr<Options>;

CLI::App* add(CLI::App& parent, const std::string& name, const std::string& what, Files& files) {
  CLI::App* parser = parent.add_subcommand(name, what);
  parser->add_option("FILE", files, "Data files")->type_name("")->required();
  return parser;
}

Command add_inspect(CLI::App& parent, const Shared& options) {
  CLI::App* parser = add(parent, "inspect", "Show what files hold", options->files);
  parser->add_option("-n,--records", options->show, "Records to show of each file")
      ->type_name("N")
      ->capture_default_str();
  parser->footer(
      "Shows the first records of each file, the features of those that are a tf.Example, then "
      "how\n"
      "many there are and their sizes. Of IDX and NPY files: type and shape.\n"
      "Examples:\n"
      "  lockstep data inspect train.tfrecord\n"
      "  lockstep data inspect -n 1 train-*.tfrecord.gz t10k-images-idx3-ubyte.gz");
  return {parser, [options] { return inspect_data(options->files, options->show); }};
}

Command add_count(CLI::App& parent, const Shared& options) {
  CLI::App* parser = add(parent, "count", "Count records", options->files);
  parser->footer(
      "Data is not read or checked, only the lengths of the records.\n"
      "Examples:\n"
      "  lockstep data count train-*.tfrecord");
  return {parser, [options] { return count_data(options->files); }};
}

Command add_verify(CLI::App& parent, const Shared& options) {
  CLI::App* parser = add(parent, "verify", "Check every checksum", options->files);
  parser->add_flag("--skip-corrupt", options->skip_corrupt,
                   "Go on behind a corrupt record; else it is the last of its file");
  parser->footer(
      "Says file, record (counted from 0) and byte of what is corrupt. Where a length is corrupt,\n"
      "the rest of the file is lost. Exit code 1 if anything is corrupt or cannot be read.\n"
      "Examples:\n"
      "  lockstep data verify train-*.tfrecord\n"
      "  lockstep data verify --skip-corrupt damaged.tfrecord");
  return {parser, [options] {
            return verify_data(options->files,
                               options->skip_corrupt ? Corrupt::skip : Corrupt::stop);
          }};
}

Command add_shard(CLI::App& parent, const Shared& options) {
  ShardOptions& shard = options->shard;
  CLI::App* parser =
      add(parent, "shard", "Distribute the records of files over N new ones", shard.files);
  parser->add_option("--into", shard.into, "Number of new files")->type_name("N")->required();
  parser->add_option("--output", shard.output, "The files are PREFIX-00000-of-0000N and so on")
      ->type_name("PREFIX")
      ->required();
  parser->add_option("--compression", shard.compression, "none, gzip or zlib")
      ->type_name("")
      ->capture_default_str();
  parser->add_flag("--skip-corrupt", options->skip_corrupt,
                   "Leave out corrupt records; else they end the command");
  parser->footer(
      "Records go round: the first to the first file, the second to the second. The new files\n"
      "appear when all are complete, or not at all; files that exist are not replaced.\n"
      "Examples:\n"
      "  lockstep data shard --into 16 --output data/train all.tfrecord\n"
      "  lockstep data shard --into 4 --output part --compression gzip a.tfrecord b.tfrecord");
  return {parser, [options] {
            options->shard.corrupt = options->skip_corrupt ? Corrupt::skip : Corrupt::stop;
            return shard_data(options->shard);
          }};
}

}  // namespace

Command add_data(CLI::App& application) {
  const auto options = std::make_shared<Options>();
  CLI::App* parser = application.add_subcommand("data", "Look into, verify and split data files");
  parser->require_subcommand(1);
  const auto commands = std::make_shared<Commands>(
      Commands{add_inspect(*parser, options), add_count(*parser, options),
               add_verify(*parser, options), add_shard(*parser, options)});
  parser->footer(
      "Files of records (TFRecord) may be plain or compressed with gzip or zlib.\n"
      "Examples:\n"
      "  lockstep data inspect train.tfrecord\n"
      "  lockstep data verify train-*.tfrecord\n"
      "  lockstep data shard --into 16 --output data/train all.tfrecord\n"
      "`lockstep data <command> --help` has the options.");
  return {parser, [commands] {
            for (const Command& command : *commands) {
              if (*command.parser) return command.run();
            }
            return 1;
          }};
}

DataProgress::DataProgress()
    : terminal_(isatty(STDERR_FILENO) == 1), last_(std::chrono::steady_clock::now()) {}

void DataProgress::show(const std::string& file, std::uint64_t records) {
  if (!terminal_) return;
  const auto now = std::chrono::steady_clock::now();
  if (now - last_ < std::chrono::milliseconds(100)) return;
  last_ = now;
  shown_ = true;
  fmt::print(stderr, "\r\033[K{}: {} records", file, records);
  std::fflush(stderr);
}

void DataProgress::clear() {
  if (!std::exchange(shown_, false)) return;
  fmt::print(stderr, "\r\033[K");
  std::fflush(stderr);
}

void DataProgress::complain(const std::string& what) {
  clear();
  std::fflush(stdout);
  fmt::print(stderr, "lockstep: {}\n", what);
}

}  // namespace lockstep::tool
