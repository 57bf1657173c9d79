// Batch: several operations issued as one.
//
//   Batch batch = group.batch();
//   for (auto& gradient : gradients) batch.all_reduce(Op::sum, std::span(gradient));
//   batch.run();
//
// Operations of the same kind and element type become one operation over a list of buffers, reduced
// where they lie: one synchronisation for all of them and nothing is packed. Every rank adds the
// same operations in the same order. A batch can be run once.
#pragma once

#include <memory>

#include "lockstep/coll/session.h"

namespace lockstep::coll {

class Batch {
 public:
  Batch(Batch&&) noexcept;
  Batch& operator=(Batch&&) noexcept;
  ~Batch();

  void all_reduce(Op op, Buffer in_place);
  void all_reduce(Op op, Inputs inputs, Buffer output);
  void broadcast(Buffer buffer, Root root);

  void run(const CallOptions& options = {}, Here here = Here::now());
  Work start(const CallOptions& options = {}, Here here = Here::now());

 private:
  friend class Session;
  explicit Batch(std::shared_ptr<Session::Impl> session);
  struct Parts;
  Parts& open();
  std::shared_ptr<Work::Shared> fuse(const CallOptions& options, Here here);
  std::shared_ptr<Session::Impl> session_;
  std::unique_ptr<Parts> parts_;
};

}  // namespace lockstep::coll
