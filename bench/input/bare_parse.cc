#include "bench/input/bare_parse.h"

#include "format/example.pb.h"

namespace lockstep::bench {

struct BareParse::Message {
  proto::Example example;
};

BareParse::BareParse() : message_(std::make_unique<Message>()) {}
BareParse::~BareParse() = default;

bool BareParse::parse(const std::string& record) {
  return message_->example.ParseFromArray(record.data(), static_cast<int>(record.size()));
}

}  // namespace lockstep::bench
