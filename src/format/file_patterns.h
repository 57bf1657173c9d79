// File patterns: names of data files in short.
//
//   data/train-*.tfrecord     *, ? and [a-z] as in a shell; directories are left out
//   data/train.tfrecord@16    data/train.tfrecord-00000-of-00016 to ...-00015-of-00016
//   data/one.tfrecord         itself; a name that exists is never taken for a pattern
//
// The list is sorted by bytes and has no name twice: it is the same on every host that sees the
// same files. A pattern that matches nothing, or a shard that is missing, is a SystemError with
// Code::not_found that names it.
#pragma once

#include <span>
#include <string>
#include <vector>

namespace lockstep::format {

std::vector<std::string> expand_file_patterns(std::span<const std::string> patterns);
std::vector<std::string> expand_file_pattern(const std::string& pattern);

/// The name of one file of several: prefix-00003-of-00016.
std::string shard_name(const std::string& prefix, int shard, int shards);

}  // namespace lockstep::format
