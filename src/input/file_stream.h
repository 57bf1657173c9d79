// ReaderStage: the elements of files, file after file.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "lockstep/detail/stage.h"
#include "lockstep/error.h"

namespace lockstep::detail {

/// One open file. What it gives are places: elements, and errors that are thrown instead of one.
template <class T>
class FileElements {
 public:
  FileElements() = default;
  FileElements(const FileElements&) = delete;
  FileElements& operator=(const FileElements&) = delete;
  virtual ~FileElements() = default;
  /// The next element; none at the end.
  virtual std::optional<T> next() = 0;
  /// Passes over up to `count` places; how many there were. Does not throw what a place would.
  virtual std::uint64_t skip(std::uint64_t count) = 0;
  /// After an error of next(): whether another call can give more.
  [[nodiscard]] virtual bool goes_on() const noexcept { return false; }
};

template <class T>
class ReaderStage final : public Transform<ReaderStage<T>, std::string, T> {
 public:
  using Open = std::function<std::unique_ptr<FileElements<T>>(const std::string& file)>;
  /// Elements of a file, as far as they can be counted without reading it.
  using Count = std::function<std::int64_t(const std::string& file)>;
  ReaderStage(StageOfPtr<std::string> files, Open open, std::optional<ElementSpec> spec,
              std::string text, Count count = nullptr)
      : Transform<ReaderStage, std::string, T>(std::move(files)),
        open_(std::move(open)),
        spec_(std::move(spec)),
        text_(std::move(text)),
        count_(std::move(count)) {}

  [[nodiscard]] Stage::Role role() const noexcept override { return Stage::Role::reader; }
  [[nodiscard]] std::string describe() const override { return text_; }
  [[nodiscard]] std::int64_t cardinality() const override {
    const std::int64_t files = this->input().cardinality();
    if (files == 0) return 0;
    if (files < 0 || !count_) return kUnknownCardinality;
    std::int64_t all = 0;
    try {
      for (const auto& file : this->input().first_strings(static_cast<std::size_t>(files))) {
        const std::int64_t own = count_(file);
        if (own == kUnknownCardinality) return own;
        all += own;
      }
    } catch (const Error&) {  // a file that cannot be read is an error when its turn comes
      return kUnknownCardinality;
    }
    return all;
  }
  [[nodiscard]] std::optional<ElementSpec> static_spec() const override { return spec_; }
  [[nodiscard]] StreamPtr<T> open(const Opening& opening) const override {
    return std::make_unique<FileAfterFile>(this->input().open(opening), open_);
  }

 private:
  class FileAfterFile final : public Stream<T> {
   public:
    FileAfterFile(StreamPtr<std::string> names, Open open)
        : names_(std::move(names)), open_(std::move(open)) {}
    std::optional<T> next() override {
      stop_if_asked();
      while (open_next()) {
        try {
          if (std::optional<T> element = file_->next()) return element;
        } catch (...) {
          if (!file_->goes_on()) file_.reset();
          throw;
        }
        file_.reset();
      }
      return std::nullopt;
    }
    Skipped skip(std::uint64_t count, Skip) override {
      Skipped skipped;
      while (skipped.places < count) {
        stop_if_asked();
        try {
          if (!open_next()) break;
          const std::uint64_t some = std::min(count - skipped.places, kSkippedAtOnce);
          const std::uint64_t passed = file_->skip(some);
          skipped.places += passed;
          if (passed < some) file_.reset();
        } catch (const SystemError&) {  // what cannot be opened or read has one place
          skipped.count_lost_file();
          file_.reset();
        } catch (const DataError&) {
          ++skipped.places;
          file_.reset();
        }
      }
      return skipped;
    }

   private:
    /// Places that are passed over between two looks at whether to stop.
    static constexpr std::uint64_t kSkippedAtOnce = 64;

    /// False if there are no more files. One that cannot be opened is behind us when that is
    /// thrown.
    bool open_next() {
      if (file_) return true;
      const std::optional<std::string> name = names_->next();
      if (!name) return false;
      file_ = open_(*name);
      return true;
    }

    StreamPtr<std::string> names_;
    Open open_;
    std::unique_ptr<FileElements<T>> file_;
  };

  Open open_;
  std::optional<ElementSpec> spec_;
  std::string text_;
  Count count_;
};

}  // namespace lockstep::detail
