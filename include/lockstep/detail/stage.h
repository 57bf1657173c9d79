// Stages: what a dataset is made of. A stage is an immutable description; open() makes a stream of
// elements of it, any number of times. Each stage knows its inputs and can be made again with
// others, so that a distributed dataset can be cut up for its workers.
//
// Threads: a stage may be opened from any thread; a stream belongs to one thread at a time.
#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/detail/background.h"
#include "lockstep/detail/rows.h"
#include "lockstep/error.h"
#include "lockstep/nest.h"

namespace lockstep {

/// How the elements of a dataset are divided among workers.
enum class AutoShardPolicy { off = -1, automatic = 0, file = 1, data = 2 };

/// Numbers of elements that are not numbers.
inline constexpr std::int64_t kInfinite = -1;
inline constexpr std::int64_t kUnknownCardinality = -2;

namespace detail {

class Stage;
using StagePtr = std::shared_ptr<const Stage>;

class Stage : public std::enable_shared_from_this<Stage> {
 public:
  enum class Role {
    source,     // elements out of nothing
    reader,     // reads the files that its input names
    transform,  // one input
    combine,    // several inputs, alike
    flatten,    // one input, whose elements become datasets
    opaque,     // nothing is known
  };

  virtual ~Stage() = default;
  [[nodiscard]] virtual Role role() const noexcept = 0;
  /// One line: "batch(4)".
  [[nodiscard]] virtual std::string describe() const = 0;
  /// The same without what changes no element, such as numbers of threads: what workers compare and
  /// positions are checked against. Empty for a stage that changes none at all.
  [[nodiscard]] virtual std::string signature() const { return describe(); }
  [[nodiscard]] virtual std::vector<StagePtr> inputs() const { return {}; }
  /// The same stage over others; itself if it has none.
  [[nodiscard]] virtual StagePtr with_inputs(const std::vector<StagePtr>& inputs) const {
    static_cast<void>(inputs);
    return shared_from_this();
  }
  /// Elements of a stream, kInfinite or kUnknownCardinality.
  [[nodiscard]] virtual std::int64_t cardinality() const { return kUnknownCardinality; }
  /// What is known of the elements before any is made.
  [[nodiscard]] virtual std::optional<ElementSpec> static_spec() const { return std::nullopt; }

  /// Rows that this stage puts into every batch but the last.
  [[nodiscard]] virtual std::optional<std::int64_t> batch_size() const { return std::nullopt; }
  /// Rows of all batches of a stream, kInfinite or kUnknownCardinality.
  [[nodiscard]] virtual std::int64_t batched_rows() const { return kUnknownCardinality; }
  /// Gives the batches of its input on as they are.
  [[nodiscard]] virtual bool keeps_batches() const noexcept { return false; }
  [[nodiscard]] virtual bool shuffles() const noexcept { return false; }
  /// A flattening stage whose function reads the file that its argument names.
  [[nodiscard]] virtual bool reads_its_elements() const { return false; }
  [[nodiscard]] virtual std::optional<AutoShardPolicy> auto_shard_policy() const {
    return std::nullopt;
  }
  /// Files a reader is given, as far as they are strings: at most `most` of them.
  [[nodiscard]] virtual std::vector<std::string> first_strings(std::size_t most) const {
    static_cast<void>(most);
    return {};
  }
  /// This stage with only every count-th element, from index on.
  [[nodiscard]] virtual StagePtr sharded(std::int64_t count, std::int64_t index) const = 0;
};

/// Indented lines, the last stage first.
std::string explain(const Stage& stage);
/// Signatures of the stages, indented, the last stage first.
std::vector<std::string> signatures(const Stage& stage);
/// Equal for equal signatures.
std::uint64_t fingerprint(const Stage& stage);
/// The policy nearest to the end of the pipeline, or automatic.
AutoShardPolicy auto_shard_policy(const Stage& stage);
/// Mixes numbers into a seed.
std::uint64_t mix(std::uint64_t a, std::uint64_t b) noexcept;

/// Which pass over the data a stream is: shuffling depends on it.
struct Opening {
  std::uint64_t pass = 0;
};

/// How places of a stream are passed over.
enum class Skip {
  exactly,  // as many places as next() would take for them, whatever it throws
  cheaply,  // none of them was an error when they were read before
};

/// Places that were passed over.
struct Skipped {
  std::uint64_t places = 0;
  std::uint64_t lost_files = 0;  // places that were SystemErrors
  std::exception_ptr first_lost = nullptr;

  /// Counts a place whose SystemError is the current exception.
  void count_lost_file() {
    ++places;
    if (++lost_files == 1) first_lost = std::current_exception();
  }
  void add(const Skipped& more) {
    places += more.places;
    lost_files += more.lost_files;
    if (!first_lost) first_lost = more.first_lost;
  }
  /// Throws the first SystemError if there were more than `expected`.
  void require_files(std::uint64_t expected = 0) const {
    if (lost_files > expected) std::rethrow_exception(first_lost);
  }
};

/// Elements one after the other. What next() gives is a place: an element, or an error that is
/// thrown instead of it. The next call gives the next place.
template <class T>
class Stream {
 public:
  Stream() = default;
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  virtual ~Stream() = default;
  /// The next element; none at the end, and from then on.
  virtual std::optional<T> next() = 0;
  /// Passes over places, of which there are fewer than `count` only at the end. Does not throw what
  /// next() would for them.
  virtual Skipped skip(std::uint64_t count, Skip how) {
    static_cast<void>(how);
    Skipped skipped;
    while (skipped.places < count) {
      try {
        if (!next()) break;
        ++skipped.places;
      } catch (const SystemError&) {
        skipped.count_lost_file();
      } catch (const InputStopped&) {
        throw;
      } catch (...) {
        ++skipped.places;
      }
    }
    return skipped;
  }
};

template <class T>
using StreamPtr = std::unique_ptr<Stream<T>>;

/// Whether a type is made of tensors alone, so that it has rows and a spec.
template <class T>
struct IsTensorNest : std::bool_constant<std::is_base_of_v<Tensor, T> || MemberNest<T>> {};
template <class T, class A>
struct IsTensorNest<std::vector<T, A>> : IsTensorNest<T> {};
template <class T, std::size_t n>
struct IsTensorNest<std::array<T, n>> : IsTensorNest<T> {};
template <class T>
struct IsTensorNest<std::optional<T>> : IsTensorNest<T> {};
template <class... Ts>
struct IsTensorNest<std::tuple<Ts...>> : std::conjunction<IsTensorNest<Ts>...> {};
template <class A, class B>
struct IsTensorNest<std::pair<A, B>> : std::conjunction<IsTensorNest<A>, IsTensorNest<B>> {};
template <class K, class T, class C, class A>
struct IsTensorNest<std::map<K, T, C, A>> : IsTensorNest<T> {};
template <class K, class T, class H, class E, class A>
struct IsTensorNest<std::unordered_map<K, T, H, E, A>> : IsTensorNest<T> {};

template <class T>
class StageOf : public Stage {
 public:
  [[nodiscard]] virtual StreamPtr<T> open(const Opening& opening) const = 0;
  [[nodiscard]] StagePtr sharded(std::int64_t count, std::int64_t index) const override;
  [[nodiscard]] std::vector<std::string> first_strings(std::size_t most) const override {
    std::vector<std::string> strings;
    if constexpr (std::is_same_v<T, std::string>) {
      const StreamPtr<T> stream = open({});
      while (strings.size() < most) {
        std::optional<T> next = stream->next();
        if (!next) break;
        strings.push_back(std::move(*next));
      }
    }
    return strings;
  }
  /// As far as known; else as the first element looks.
  [[nodiscard]] virtual ElementSpec spec() const {
    if constexpr (IsTensorNest<T>::value) {
      if (const auto known = this->static_spec()) return *known;
      if (const std::optional<T> first = open({})->next()) return spec_of(tensors_of(*first));
    }
    return {};
  }
};

template <class T>
using StageOfPtr = std::shared_ptr<const StageOf<T>>;

/// InternalError if the stage has elements of another type.
[[noreturn]] void wrong_element_type(const Stage& stage);
template <class T>
StageOfPtr<T> as_stage_of(const StagePtr& stage) {
  auto typed = std::dynamic_pointer_cast<const StageOf<T>>(stage);
  if (!typed) wrong_element_type(*stage);
  return typed;
}

/// A stage with one input, made again by copying itself.
template <class Self, class T, class U>
class Transform : public StageOf<U> {
 public:
  explicit Transform(StageOfPtr<T> input) : input_(std::move(input)) {}
  [[nodiscard]] Stage::Role role() const noexcept override { return Stage::Role::transform; }
  [[nodiscard]] std::vector<StagePtr> inputs() const override { return {input_}; }
  [[nodiscard]] StagePtr with_inputs(const std::vector<StagePtr>& inputs) const override {
    auto copy = std::make_shared<Self>(static_cast<const Self&>(*this));
    copy->input_ = as_stage_of<T>(inputs.at(0));
    return copy;
  }

 protected:
  [[nodiscard]] const StageOf<T>& input() const noexcept { return *input_; }

 private:
  StageOfPtr<T> input_;
};

/// A stage without inputs.
template <class T>
class Source : public StageOf<T> {
 public:
  [[nodiscard]] Stage::Role role() const noexcept override { return Stage::Role::source; }
};

}  // namespace detail
}  // namespace lockstep
