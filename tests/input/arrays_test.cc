#include "lockstep/arrays.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include "tests/input/files_to_read.h"
#include "tests/input/helpers.h"

namespace lockstep {
namespace {

using format::packed;
using format::read_file;
using testing::all_of;
using testing::bytes_of_numbers;
using testing::count;
using ::testing::ElementsAre;
using testing::error_of;
using ::testing::HasSubstr;
using testing::numbers_of;
using testing::Rows;

using Arrays = testing::FilesToRead;

TEST_F(Arrays, IdxFilesPlainAndPacked) {
  const std::string content(
      "\0\0\x08\x03\0\0\0\x02\0\0\0\x01\0\0\0\x03"
      "abcdef",
      22);
  write("plain", content);
  write("packed.gz", packed(content, Compression::gzip));
  for (const char* name : {"plain", "packed.gz"}) {
    const Tensor images = data::read_idx(path(name));
    EXPECT_EQ(images.scalar_type(), at::kByte);
    EXPECT_EQ(images.sizes(), at::IntArrayRef({2, 1, 3}));
    EXPECT_EQ(numbers_of(images), count('a', 'g'));
    EXPECT_THAT(all_of(data::idx(path(name))),
                ElementsAre(Rows{'a', 'b', 'c'}, Rows{'d', 'e', 'f'}));
  }
  write("short", content.substr(0, 20));
  EXPECT_THAT(error_of<DataError>([&] { data::read_idx(path("short")); }),
              HasSubstr(path("short")));
  EXPECT_THAT(error_of<SystemError>([&] { data::idx(path("missing")); }),
              HasSubstr(path("missing")));
  // Values of several bytes are big endian in the file.
  write("wide", std::string("\0\0\x0c\x01\0\0\0\x01\0\0\1\2", 12));
  EXPECT_EQ(numbers_of(data::read_idx(path("wide"))), Rows({258}));
  write("none", std::string("\0\0\x08\x01\0\0\0\0", 8));
  EXPECT_EQ(data::read_idx(path("none")).numel(), 0);
}

TEST_F(Arrays, NpyFilesThereAndBack) {
  for (const Tensor& tensor : {torch::arange(6).view({2, 3}), torch::randn({4, 1, 2}),
                               torch::full({}, 7.5), torch::zeros({0, 3}), torch::randn({3, 4}).t(),
                               torch::tensor({true, false}), torch::randn({5}).to(torch::kHalf)}) {
    data::write_npy(path("x.npy"), tensor);
    const Tensor back = data::read_npy(path("x.npy"));
    EXPECT_EQ(back.scalar_type(), tensor.scalar_type());
    EXPECT_TRUE(back.equal(tensor)) << tensor;
  }
  EXPECT_THROW(data::read_npy(path("missing")), SystemError);
  write("bad.npy", "no numpy");
  EXPECT_THAT(error_of<DataError>([&] { data::read_npy(path("bad.npy")); }),
              HasSubstr(path("bad.npy")));
}

TEST_F(Arrays, NpyInFortranOrder) {
  std::string header = "{'descr': '<i8', 'fortran_order': True, 'shape': (2, 3), }";
  header.resize(117, ' ');
  header += '\n';
  write("f.npy", std::string("\x93NUMPY\x01\x00\x76\x00", 10) + header +
                     bytes_of_numbers<std::int64_t>({0, 3, 1, 4, 2, 5}));
  const Tensor array = data::read_npy(path("f.npy"));
  EXPECT_TRUE(array.is_contiguous());
  EXPECT_EQ(array.sizes(), at::IntArrayRef({2, 3}));
  EXPECT_EQ(numbers_of(array), count(0, 6));
}

/// A zip archive of one stored member.
std::string archive_of(const std::string& name, const std::string& content) {
  const auto crc = static_cast<std::uint32_t>(::crc32(
      0, reinterpret_cast<const Bytef*>(content.data()), static_cast<uInt>(content.size())));
  const auto u16 = [](std::size_t v) {
    return bytes_of_numbers<std::uint16_t>({static_cast<std::uint16_t>(v)});
  };
  const auto u32 = [](std::size_t v) {
    return bytes_of_numbers<std::uint32_t>({static_cast<std::uint32_t>(v)});
  };
  const std::string common = u16(20) + u16(0) + u16(0) + u16(0) + u16(0) + u32(crc) +
                             u32(content.size()) + u32(content.size()) + u16(name.size()) + u16(0);
  const std::string local = "PK\3\4" + common + name + content;
  const std::string directory =
      "PK\1\2" + u16(20) + common + u16(0) + u16(0) + u16(0) + u32(0) + u32(0) + name;
  return local + directory + "PK\5\6" + u16(0) + u16(0) + u16(1) + u16(1) + u32(directory.size()) +
         u32(local.size()) + u16(0);
}

TEST_F(Arrays, NpzArchives) {
  const Tensor x = torch::arange(6).view({2, 3});
  data::write_npy(path("x.npy"), x);
  write("all.npz", archive_of("x.npy", read_file(path("x.npy"))));
  const auto arrays = data::read_npz(path("all.npz"));
  ASSERT_EQ(arrays.size(), 1u);
  EXPECT_TRUE(arrays.at("x").equal(x));
  write("none.npz", "nothing");
  EXPECT_THAT(error_of<DataError>([&] { data::read_npz(path("none.npz")); }),
              HasSubstr(path("none.npz")));
}

}  // namespace
}  // namespace lockstep
