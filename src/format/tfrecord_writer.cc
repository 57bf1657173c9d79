#include <exception>
#include <utility>

#include "format/byte_sink.h"
#include "format/record_frame.h"
#include "lockstep/error.h"
#include "lockstep/tfrecord.h"

namespace lockstep {

class RecordWriter::Impl {
 public:
  Impl(const std::string& path, const RecordWriterOptions& options)
      : path_(path), sink_(format::create_file(path, options.compression)) {}

  ~Impl() {
    try {
      if (!failure_) close();
    } catch (const std::exception&) {  // who wants to know calls close()
    }
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  void write(std::string_view record) {
    if (closed_) throw InvalidUsage("the record writer of " + path_ + " is closed");
    const auto data = std::as_bytes(std::span(record));
    guarded([&] {
      sink_->write(format::record_header(data.size()));
      sink_->write(data);
      sink_->write(format::record_footer(data));
    });
    ++records_;
  }

  void close() {
    if (std::exchange(closed_, true) && !failure_) return;
    guarded([&] { sink_->close(); });
  }

  [[nodiscard]] std::uint64_t records() const noexcept { return records_; }

 private:
  /// After a failure it is unknown what the file holds: nothing more is written, the cause is told
  /// again.
  template <class Step>
  void guarded(Step step) {
    if (failure_) std::rethrow_exception(failure_);
    try {
      step();
    } catch (...) {
      failure_ = std::current_exception();
      throw;
    }
  }

  std::string path_;
  std::unique_ptr<format::ByteSink> sink_;
  std::uint64_t records_ = 0;
  bool closed_ = false;
  std::exception_ptr failure_;
};

RecordWriter::RecordWriter(const std::string& path, RecordWriterOptions options)
    : impl_(std::make_unique<Impl>(path, options)) {}

RecordWriter::~RecordWriter() = default;
RecordWriter::RecordWriter(RecordWriter&&) noexcept = default;
RecordWriter& RecordWriter::operator=(RecordWriter&&) noexcept = default;

void RecordWriter::write(std::string_view record) { impl_->write(record); }
void RecordWriter::close() { impl_->close(); }
std::uint64_t RecordWriter::records() const noexcept { return impl_->records(); }

}  // namespace lockstep
