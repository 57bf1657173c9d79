// tf.Example by protobuf alone, for comparison.
#pragma once

#include <memory>
#include <string>

namespace lockstep::bench {

class BareParse {
 public:
  BareParse();
  ~BareParse();
  BareParse(const BareParse&) = delete;
  BareParse& operator=(const BareParse&) = delete;
  /// Into one message that is used again and again: the fastest way without an arena.
  bool parse(const std::string& record);

 private:
  struct Message;
  std::unique_ptr<Message> message_;
};

}  // namespace lockstep::bench
