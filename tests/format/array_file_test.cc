#include "lockstep/array_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "format/idx.h"
#include "format/npy.h"
#include "lockstep/error.h"
#include "lockstep/tfrecord.h"
#include "tests/format/files.h"

namespace lockstep {
namespace {

using testing::ElementsAre;

class ArrayFile : public testing::Test {
 protected:
  std::optional<ArrayFileInfo> info_of(std::string_view content) {
    format::write_file(path_, content);
    return array_file_info(path_);
  }
  TemporaryDirectory directory_;
  std::string path_ = directory_.path() + "/a";
};

TEST_F(ArrayFile, TellsTypeAndShapeOfIdx) {
  const auto header = format::encode_idx_header({.type = DType::uint8, .shape = {2, 3}});
  const std::string content =
      std::string(reinterpret_cast<const char*>(header.data()), header.size()) + "123456";
  for (const std::string& bytes : {content, format::packed(content, Compression::gzip)}) {
    const auto info = info_of(bytes);
    ASSERT_TRUE(info);
    EXPECT_EQ(info->format, ArrayFormat::idx);
    EXPECT_EQ(info->type, DType::uint8);
    EXPECT_THAT(info->shape, ElementsAre(2, 3));
  }
}

TEST_F(ArrayFile, TellsTypeAndShapeOfNpy) {
  const auto info =
      info_of(format::encode_npy_header({.type = DType::float32, .shape = {1, 2}}) + "12345678");
  ASSERT_TRUE(info);
  EXPECT_EQ(info->format, ArrayFormat::npy);
  EXPECT_EQ(info->type, DType::float32);
  EXPECT_THAT(info->shape, ElementsAre(1, 2));
}

TEST_F(ArrayFile, OtherFilesAreNone) {
  for (const char* content : {"", "a", "label,image\n1,2\n"}) EXPECT_FALSE(info_of(content));
  const std::size_t looks_like_idx = 0x01080000;  // the first four bytes of the file
  std::string record;
  record.resize(looks_like_idx, 'x');
  RecordWriter(path_).write(record);
  EXPECT_FALSE(array_file_info(path_));
}

TEST_F(ArrayFile, ADamagedHeaderIsAnError) {
  EXPECT_THROW(info_of("\x93NUMPY\x01"), DataError);
  EXPECT_THROW(array_file_info("/nowhere/a"), SystemError);
}

}  // namespace
}  // namespace lockstep
