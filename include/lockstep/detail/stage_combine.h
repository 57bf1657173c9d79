// Stages over several datasets: side by side, one after the other, and one for each element.
#pragma once

#include <algorithm>
#include <functional>
#include <tuple>

#include "lockstep/detail/ahead.h"
#include "lockstep/detail/stage.h"

namespace lockstep::detail {

/// As long as the shortest.
template <class... Ts>
class ZipStage final : public StageOf<std::tuple<Ts...>> {
 public:
  using Element = std::tuple<Ts...>;
  explicit ZipStage(StageOfPtr<Ts>... inputs) : inputs_(std::move(inputs)...) {}
  [[nodiscard]] Stage::Role role() const noexcept override { return Stage::Role::combine; }
  [[nodiscard]] std::string describe() const override { return "zip"; }
  [[nodiscard]] bool keeps_batches() const noexcept override { return true; }
  [[nodiscard]] std::vector<StagePtr> inputs() const override {
    return std::apply([](const auto&... each) { return std::vector<StagePtr>{each...}; }, inputs_);
  }
  [[nodiscard]] StagePtr with_inputs(const std::vector<StagePtr>& inputs) const override {
    return with(inputs, std::index_sequence_for<Ts...>());
  }
  [[nodiscard]] std::int64_t cardinality() const override {
    std::int64_t least = kInfinite;
    for (const StagePtr& input : inputs()) {
      const std::int64_t count = input->cardinality();
      if (count == kUnknownCardinality) return count;
      if (count != kInfinite) least = least == kInfinite ? count : std::min(least, count);
    }
    return least;
  }
  [[nodiscard]] std::optional<ElementSpec> static_spec() const override {
    ElementSpec whole;
    for (const StagePtr& input : inputs()) {
      const auto part = input->static_spec();
      if (!part) return std::nullopt;
      whole.insert(whole.end(), part->begin(), part->end());
    }
    return whole;
  }
  [[nodiscard]] StreamPtr<Element> open(const Opening& opening) const override {
    return std::apply(
        [&](const auto&... each) { return std::make_unique<Zipped>(each->open(opening)...); },
        inputs_);
  }

 private:
  template <std::size_t... is>
  static StagePtr with(const std::vector<StagePtr>& inputs, std::index_sequence<is...>) {
    return std::make_shared<ZipStage>(as_stage_of<Ts>(inputs.at(is))...);
  }

  class Zipped final : public Stream<Element> {
   public:
    explicit Zipped(StreamPtr<Ts>... inputs) : inputs_(std::move(inputs)...) {}
    std::optional<Element> next() override {
      if (ended_) return std::nullopt;
      return std::apply(
          [&](auto&... each) -> std::optional<Element> {
            // All go on by one place, also when one of them throws: they stay side by side.
            std::tuple<Outcome<Ts>...> read{Outcome<Ts>::of([&] { return each->next(); })...};
            std::tuple<std::optional<Ts>...> row = std::apply(
                [](auto&... one) {
                  return std::tuple<std::optional<Ts>...>{std::move(one).get()...};
                },
                read);
            return std::apply(
                [&](auto&... items) -> std::optional<Element> {
                  ended_ = !(items.has_value() && ...);
                  if (ended_) return std::nullopt;
                  return Element(std::move(*items)...);
                },
                row);
          },
          inputs_);
    }
    Skipped skip(std::uint64_t count, Skip how) override {
      Skipped all;
      std::uint64_t least = count;
      const auto pass = [&](auto& input) {
        const Skipped own = input.skip(count, how);
        least = std::min(least, own.places);
        all.add(own);
      };
      std::apply([&](auto&... each) { (pass(*each), ...); }, inputs_);
      ended_ = ended_ || least < count;
      all.places = least;
      return all;
    }

   private:
    std::tuple<StreamPtr<Ts>...> inputs_;
    bool ended_ = false;
  };

  std::tuple<StageOfPtr<Ts>...> inputs_;
};

template <class T>
class ConcatenateStage final : public StageOf<T> {
 public:
  ConcatenateStage(StageOfPtr<T> first, StageOfPtr<T> second)
      : first_(std::move(first)), second_(std::move(second)) {}
  [[nodiscard]] Stage::Role role() const noexcept override { return Stage::Role::combine; }
  [[nodiscard]] std::string describe() const override { return "concatenate"; }
  [[nodiscard]] bool keeps_batches() const noexcept override { return true; }
  [[nodiscard]] std::vector<StagePtr> inputs() const override { return {first_, second_}; }
  [[nodiscard]] StagePtr with_inputs(const std::vector<StagePtr>& inputs) const override {
    return std::make_shared<ConcatenateStage>(as_stage_of<T>(inputs.at(0)),
                                              as_stage_of<T>(inputs.at(1)));
  }
  [[nodiscard]] std::int64_t cardinality() const override {
    const std::int64_t a = first_->cardinality();
    const std::int64_t b = second_->cardinality();
    if (a == kInfinite || b == kInfinite) return kInfinite;
    return a < 0 || b < 0 ? kUnknownCardinality : a + b;
  }
  [[nodiscard]] std::optional<ElementSpec> static_spec() const override {
    const auto a = first_->static_spec();
    const auto b = second_->static_spec();
    return a && b ? std::optional(merged(*a, *b)) : std::nullopt;
  }
  [[nodiscard]] StreamPtr<T> open(const Opening& opening) const override {
    return std::make_unique<Both>(first_->open(opening), second_, opening);
  }

 private:
  class Both final : public Stream<T> {
   public:
    Both(StreamPtr<T> now, StageOfPtr<T> then, const Opening& opening)
        : now_(std::move(now)), then_(std::move(then)), opening_(opening) {}
    std::optional<T> next() override {
      std::optional<T> element = now_->next();
      if (element || !go_on()) return element;
      return now_->next();
    }
    Skipped skip(std::uint64_t count, Skip how) override {
      Skipped skipped = now_->skip(count, how);
      if (skipped.places < count && go_on()) skipped.add(now_->skip(count - skipped.places, how));
      return skipped;
    }

   private:
    bool go_on() {
      if (!then_) return false;
      now_ = then_->open(opening_);
      then_.reset();
      return true;
    }

    StreamPtr<T> now_;
    StageOfPtr<T> then_;
    Opening opening_;
  };

  StageOfPtr<T> first_;
  StageOfPtr<T> second_;
};

/// Whether a pipeline has a reader, and that is given this file.
bool reads_file(const Stage& stage, const std::string& file);

/// fn makes a dataset of each element; `cycle` of them are open at a time and give `block` elements
/// each in turn. One that ends makes room for the next, in its place.
template <class T, class U>
class InterleaveStage final : public Transform<InterleaveStage<T, U>, T, U> {
 public:
  using Function = std::function<StageOfPtr<U>(const T&)>;
  InterleaveStage(StageOfPtr<T> input, Function fn, std::size_t cycle, std::int64_t block)
      : Transform<InterleaveStage, T, U>(std::move(input)),
        fn_(std::move(fn)),
        cycle_(cycle),
        block_(block) {}
  [[nodiscard]] Stage::Role role() const noexcept override { return Stage::Role::flatten; }
  [[nodiscard]] std::string describe() const override {
    if (cycle_ == 1) return "flat_map";
    return "interleave(" + std::to_string(cycle_) + " at a time, blocks of " +
           std::to_string(block_) + ")";
  }
  [[nodiscard]] bool reads_its_elements() const override {
    if constexpr (std::is_same_v<T, std::string>) {
      // What the function does can only be seen by calling it.
      if (const std::optional<T> first = this->input().open({})->next()) {
        return reads_file(*fn_(*first), *first);
      }
    }
    return false;
  }
  [[nodiscard]] StreamPtr<U> open(const Opening& opening) const override {
    return std::make_unique<Interleaved>(this->input().open(opening), fn_, cycle_, block_, opening);
  }

 private:
  class Interleaved final : public Stream<U> {
   public:
    Interleaved(StreamPtr<T> input, Function fn, std::size_t cycle, std::int64_t block,
                const Opening& opening)
        : input_(std::move(input)),
          fn_(std::move(fn)),
          block_(block),
          opening_(opening),
          open_(cycle) {}
    std::optional<U> next() override {
      for (std::size_t idle = 0; idle < open_.size();) {
        StreamPtr<U>& stream = open_[turn_];
        if (!stream) {
          stream = open_next();
          if (!stream) {
            ++idle;
            pass_turn();
            continue;
          }
        }
        std::optional<U> element = stream->next();
        if (element) {
          if (++given_ == block_) pass_turn();
          return element;
        }
        stream.reset();
        idle = 0;
        pass_turn();
      }
      return std::nullopt;
    }

   private:
    StreamPtr<U> open_next() {
      if (!input_) return nullptr;
      const std::optional<T> element = input_->next();
      if (!element) {
        input_.reset();
        return nullptr;
      }
      return fn_(*element)->open({mix(opening_.pass, ++opened_)});
    }
    void pass_turn() {
      turn_ = (turn_ + 1) % open_.size();
      given_ = 0;
    }

    StreamPtr<T> input_;
    Function fn_;
    std::int64_t block_;
    Opening opening_;
    std::vector<StreamPtr<U>> open_;
    std::size_t turn_ = 0;
    std::int64_t given_ = 0;
    std::uint64_t opened_ = 0;
  };

  Function fn_;
  std::size_t cycle_;
  std::int64_t block_;
};

}  // namespace lockstep::detail
