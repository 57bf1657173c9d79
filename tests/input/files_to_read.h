// Files to read, in a directory of the test's own.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "lockstep/tfrecord.h"
#include "tests/format/files.h"

namespace lockstep::testing {

using Texts = std::vector<std::string>;

/// The bytes of numbers, as this machine has them.
template <class T>
std::string bytes_of_numbers(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

class FilesToRead : public ::testing::Test {
 protected:
  std::string path(const std::string& name) const { return directory_.path() + "/" + name; }
  std::string write(const std::string& name, std::string_view content) const {
    format::write_file(path(name), content);
    return path(name);
  }
  std::string write_records(const std::string& name, const Texts& records,
                            Compression compression = Compression::none) const {
    RecordWriter writer(path(name), {.compression = compression});
    for (const std::string& record : records) writer.write(record);
    writer.close();
    return path(name);
  }
  /// Turns a bit of the data of a record; all records have `length` bytes.
  void damage(const std::string& file, std::size_t record, std::size_t length) const {
    std::string content = format::read_file(file);
    content[record * (length + 16) + 12] ^= 1;
    format::write_file(file, content);
  }

 private:
  TemporaryDirectory directory_;
};

}  // namespace lockstep::testing
