#include "format/byte_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>

#include "format/window.h"
#include "lockstep/error.h"
#include "tests/format/files.h"

namespace lockstep::format {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

/// The DataError of reading all of `bytes`; "" if there is none.
std::string failure_of(std::string_view bytes, Compression compression) {
  try {
    const auto source = decompress(source_of(bytes, "a.gz"), compression);
    read_to_end(*source);
    return "";
  } catch (const DataError& error) {
    return error.what();
  }
}

TEST(ByteSource, ReadsAFileFromFrontToBack) {
  const TemporaryDirectory directory;
  const std::string path = directory.path() + "/a";
  const std::string text = sample_text(10'000);
  write_file(path, text);
  const auto source = open_file(path);
  EXPECT_EQ(source->name(), path);
  EXPECT_EQ(source->position(), 0U);
  EXPECT_EQ(read_to_end(*source), text);
  EXPECT_EQ(source->position(), text.size());
}

TEST(ByteSource, AMissingFileIsNotFound) {
  try {
    open_file("/nowhere/a");
    FAIL() << "no error";
  } catch (const SystemError& error) {
    EXPECT_EQ(error.code(), Code::not_found);
    EXPECT_THAT(error.what(), HasSubstr("/nowhere/a"));
  }
}

TEST(ByteSource, ADirectoryIsASystemErrorThatNamesIt) {
  const TemporaryDirectory directory;
  try {
    const auto source = open_file(directory.path());
    read_to_end(*source);
    FAIL() << "no error";
  } catch (const SystemError& error) {
    EXPECT_THAT(error.what(), HasSubstr(directory.path()));
  }
}

TEST(ByteSource, E11APipeIsRefusedAtOnce) {
  const TemporaryDirectory directory;
  const std::string path = directory.path() + "/pipe";
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  try {
    open_file(path);
    FAIL() << "no error";
  } catch (const SystemError& error) {
    EXPECT_THAT(error.what(), HasSubstr(path + ", which is a pipe"));
  }
}

TEST(ByteSource, SkipStopsAtTheEnd) {
  const TemporaryDirectory directory;
  const std::string path = directory.path() + "/a";
  const std::string text = sample_text(100'000);
  write_file(path, text);
  const auto file = open_file(path);
  const auto memory = source_of(text);
  const std::string bytes = packed(text, Compression::zlib);
  const auto inflated = decompress(source_of(bytes), Compression::zlib);
  for (ByteSource* source : {file.get(), memory.get(), inflated.get()}) {
    EXPECT_EQ(source->skip(40'000), 40'000U);
    EXPECT_EQ(source->position(), 40'000U);
    std::vector<std::byte> some(5);
    EXPECT_EQ(source->read(some), 5U);
    EXPECT_EQ(std::string(reinterpret_cast<const char*>(some.data()), 5), text.substr(40'000, 5));
    EXPECT_EQ(source->skip(~std::uint64_t{0}), text.size() - 40'005);
    EXPECT_EQ(source->read(some), 0U);
  }
}

/// Reads 1,000 bytes, cuts the file to `left` bytes and reads on; the message of the error.
std::string failure_of_cut(const std::string& path, std::size_t left, bool skips) {
  const auto source = open_file(path);
  std::vector<std::byte> some(1000);
  EXPECT_GT(source->read(some), 0U);
  std::filesystem::resize_file(path, left);
  for (int again = 0; again < 2; ++again) {  // the error stays
    try {
      if (skips) {
        source->skip(~std::uint64_t{0});
      } else {
        read_to_end(*source);
      }
      return "no error";
    } catch (const DataError& error) {
      EXPECT_EQ(error.code(), Code::data_loss);
      if (again == 1) return error.what();
    }
  }
  return {};
}

TEST(ByteSource, AFileThatIsCutWhileItIsReadIsDataLoss) {
  const TemporaryDirectory directory;
  const std::string path = directory.path() + "/a";
  const std::string text = sample_text(1'000'000);
  const std::string member = packed(text, Compression::gzip);
  for (const bool skips : {false, true}) {
    write_file(path, text);
    EXPECT_THAT(failure_of_cut(path, 700'000, skips),
                AllOf(HasSubstr(path + " had 1000000 bytes when it was opened"),
                      HasSubstr("at most 700000 are left")));
    write_file(path, text);
    EXPECT_THAT(failure_of_cut(path, 500, skips), HasSubstr("when it was opened"));
    // What is left of a compressed file ends where one of its members does.
    write_file(path, member + member);
    EXPECT_THAT(failure_of_cut(path, member.size(), skips), HasSubstr("when it was opened"));
  }
}

TEST(ByteSource, AFileThatGrowsIsReadToItsEnd) {
  const TemporaryDirectory directory;
  const std::string path = directory.path() + "/a";
  write_file(path, "first");
  const auto source = open_file(path);
  EXPECT_EQ(read_to_end(*source), "first");
  write_file(path, "first, more");
  EXPECT_EQ(read_to_end(*source), ", more");
}

TEST(Compression, IsToldFromTheFirstBytes) {
  const TemporaryDirectory directory;
  const std::string path = directory.path() + "/a";
  const std::string text = sample_text(300'000);
  for (const Compression compression : {Compression::gzip, Compression::zlib}) {
    write_file(path, packed(text, compression));
    const auto source = open_file(path);
    EXPECT_EQ(read_to_end(*source), text);
    EXPECT_EQ(source->position(), text.size());
    EXPECT_EQ(source->name(), path + " (decompressed)");
  }
  for (const char* plain : {"", "x", "x^2 + y^2", "\x1f\x8b\x08", "\x1f\x8b is not enough"}) {
    write_file(path, plain);
    EXPECT_EQ(read_to_end(*open_file(path)), plain);
  }
}

TEST(Compression, APlainFileThatLooksPackedIsReadIfThatIsSaid) {
  const TemporaryDirectory directory;
  const std::string path = directory.path() + "/a";
  write_file(path, "x\x9c, but text");
  EXPECT_THROW(read_to_end(*open_file(path)), DataError);
  EXPECT_EQ(read_to_end(*open_file(path, Compression::none)), "x\x9c, but text");
  const auto plain = [](std::span<const std::byte> head) { return head.size() == kHeadBytes; };
  EXPECT_EQ(read_to_end(*open_file(path, Compression::automatic, plain)), "x\x9c, but text");
}

TEST(Compression, MustBeKnownForAStreamInMemory) {
  EXPECT_THROW(decompress(source_of("x"), Compression::automatic), InvalidUsage);
}

TEST(Inflate, ReadsSeveralGzipMembersAsOne) {
  const std::string bytes = packed("first ", Compression::gzip) + packed("", Compression::gzip) +
                            packed("third", Compression::gzip);
  for (std::size_t piece = 1; piece <= bytes.size(); ++piece) {
    auto pieces = std::make_unique<Pieces>(source_of(bytes), piece);
    const auto source = decompress(std::move(pieces), Compression::gzip);
    EXPECT_EQ(read_to_end(*source, 1 + piece % 7), "first third");
  }
}

TEST(Inflate, ACutOffStreamIsAnErrorAtEveryLength) {
  for (const Compression compression : {Compression::gzip, Compression::zlib}) {
    const std::string bytes = packed(sample_text(300), compression);
    for (std::size_t size = 0; size < bytes.size(); ++size) {
      const std::string message = failure_of(std::string_view(bytes).substr(0, size), compression);
      EXPECT_THAT(message, HasSubstr("a.gz ends within")) << size;
      EXPECT_THAT(message, HasSubstr("at byte " + std::to_string(size)));
    }
    EXPECT_EQ(failure_of(bytes, compression), "");
  }
}

TEST(Inflate, ABitFlipIsAnErrorOrDoesNoHarm) {
  const std::string text = sample_text(300);
  for (const Compression compression : {Compression::gzip, Compression::zlib}) {
    const std::string bytes = packed(text, compression);
    for (std::size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
      std::string flipped = bytes;
      flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << bit % 8));
      try {
        const auto source = decompress(source_of(flipped), compression);
        EXPECT_EQ(read_to_end(*source), text) << bit;  // time, system and level of a gzip header
      } catch (const DataError&) {
      }
    }
  }
}

TEST(Inflate, BytesBehindTheEndAreAnError) {
  for (const Compression compression : {Compression::gzip, Compression::zlib}) {
    const std::string bytes = packed("text", compression);
    EXPECT_THAT(failure_of(bytes + "more", compression),
                HasSubstr("behind the end of its " +
                          std::string(compression == Compression::gzip ? "gzip" : "zlib")));
  }
}

TEST(Inflate, WhatComesBeforeTheErrorIsReadAndTheErrorStays) {
  const std::string text = sample_text(100'000);
  std::string bytes = packed(text, Compression::gzip);
  bytes[bytes.size() - 6] ^= 1;  // the checksum at the end
  const auto source = decompress(source_of(bytes), Compression::gzip);
  std::vector<std::byte> block(text.size());
  std::size_t got = 0;
  while (got < text.size()) got += source->read(std::span(block).subspan(got));
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(block.data()), got), text);
  for (int i = 0; i < 2; ++i) EXPECT_THROW(source->read(block), DataError);
}

TEST(Window, ShowsAsMuchAsIsAskedForAcrossBlocks) {
  const std::string text = sample_text(5000);
  for (const std::size_t block : {1, 7, 64, 10'000}) {
    for (const std::size_t step : {1, 5, 63, 64, 65, 1000}) {
      Window window(std::make_unique<Pieces>(source_of(text), 50), block);
      std::string seen;
      while (window.ensure(step)) {
        EXPECT_EQ(window.offset(), seen.size());
        seen.append(reinterpret_cast<const char*>(window.bytes().data()), step);
        window.consume(step);
      }
      seen.append(reinterpret_cast<const char*>(window.bytes().data()), window.bytes().size());
      EXPECT_EQ(seen, text) << block << " " << step;
    }
  }
}

TEST(Window, SkipsWhatIsVisibleAndWhatIsNot) {
  const std::string text = sample_text(5000);
  Window window(source_of(text), 100);
  ASSERT_TRUE(window.ensure(10));
  EXPECT_EQ(window.skip(50), 50U);
  EXPECT_EQ(window.skip(1000), 1000U);
  EXPECT_EQ(window.offset(), 1050U);
  ASSERT_TRUE(window.ensure(1));
  EXPECT_EQ(static_cast<char>(window.bytes()[0]), text[1050]);
  EXPECT_EQ(window.skip(10'000), 3950U);
  EXPECT_FALSE(window.ensure(1));
}

TEST(Window, AWildSizeCostsNoMemory) {
  const std::string text = sample_text(5000);
  Window window(source_of(text), 100);
  EXPECT_FALSE(window.ensure(std::size_t{1} << 62));
  EXPECT_EQ(window.bytes().size(), text.size());
}

}  // namespace
}  // namespace lockstep::format
