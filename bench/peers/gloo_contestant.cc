// All-reduce of Gloo over TCP, its only transport on a plain machine. Variants: "ring", "bcube" of
// the newer interface; "halving", "chunked" of the older, whose objects are made once for a buffer.
#include <gloo/allreduce.h>
#include <gloo/allreduce_halving_doubling.h>
#include <gloo/allreduce_ring_chunked.h>
#include <gloo/barrier.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>

#include <filesystem>
#include <stdexcept>
#include <vector>

#include "bench/peers/addresses.h"
#include "bench/peers/rank_main.h"

namespace lockstep::bench::peers {
namespace {

using ContextPointer = std::shared_ptr<gloo::Context>;

/// gloo::allreduce() with its arguments kept.
class FunctionCall final : public Call {
 public:
  FunctionCall(const ContextPointer& context, gloo::AllreduceOptions::Algorithm algorithm,
               const Job& job)
      : memory_(job) {
    void (*add)(void*, const void*, const void*, std::size_t) = &gloo::sum<float>;
    for (const std::span<float> piece : memory_.pieces()) {
      gloo::AllreduceOptions& options = options_.emplace_back(context);
      options.setAlgorithm(algorithm);
      options.setOutput(piece.data(), piece.size());
      options.setReduceFunction(add);
    }
  }
  std::span<float> memory() override { return memory_.all(); }
  void run() override {
    for (gloo::AllreduceOptions& options : options_) gloo::allreduce(options);
  }

 private:
  CallerMemory memory_;
  std::vector<gloo::AllreduceOptions> options_;
};

/// One object of an older algorithm for each piece.
template <class Algorithm>
class ObjectCall final : public Call {
 public:
  ObjectCall(const ContextPointer& context, const Job& job) : memory_(job) {
    for (const std::span<float> piece : memory_.pieces()) {
      algorithms_.push_back(std::make_unique<Algorithm>(context, std::vector<float*>{piece.data()},
                                                        static_cast<int>(piece.size())));
    }
  }
  std::span<float> memory() override { return memory_.all(); }
  void run() override {
    for (const auto& algorithm : algorithms_) algorithm->run();
  }

 private:
  CallerMemory memory_;
  std::vector<std::unique_ptr<Algorithm>> algorithms_;
};

class Gloo final : public Contestant {
 public:
  explicit Gloo(const RankOptions& options) : variant_(options.variant) {
    gloo::transport::tcp::attr attributes(host_of(address_of(options)).c_str());
    auto device = gloo::transport::tcp::CreateDevice(attributes);
    const std::string store = options.directory + "/" + options.name + ".store";
    std::filesystem::create_directories(store);
    auto rendezvous = std::make_shared<gloo::rendezvous::FileStore>(store);
    auto context = std::make_shared<gloo::rendezvous::Context>(options.rank, options.ranks);
    context->connectFullMesh(*rendezvous, device);
    context_ = context;
  }

  std::unique_ptr<Call> prepare(const Job& job) override {
    using Algorithm = gloo::AllreduceOptions::Algorithm;
    if (variant_ == "ring") return std::make_unique<FunctionCall>(context_, Algorithm::RING, job);
    if (variant_ == "bcube") return std::make_unique<FunctionCall>(context_, Algorithm::BCUBE, job);
    if (variant_ == "halving")
      return std::make_unique<ObjectCall<gloo::AllreduceHalvingDoubling<float>>>(context_, job);
    if (variant_ == "chunked")
      return std::make_unique<ObjectCall<gloo::AllreduceRingChunked<float>>>(context_, job);
    throw std::runtime_error("unknown variant " + variant_);
  }

  void barrier() override {
    gloo::BarrierOptions options(context_);
    gloo::barrier(options);
  }

 private:
  std::string variant_;
  ContextPointer context_;
};

}  // namespace
}  // namespace lockstep::bench::peers

int main(int argc, char** argv) {
  using namespace lockstep::bench::peers;
  return rank_main(argc, argv,
                   [](const RankOptions& options) { return std::make_unique<Gloo>(options); });
}
