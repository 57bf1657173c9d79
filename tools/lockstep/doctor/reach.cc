#include "doctor/reach.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <sstream>
#include <string_view>
#include <utility>

#include "base/status.h"
#include "sys/posix_net.h"

namespace lockstep::tool {
namespace {

using State = sys::Transfer::State;

constexpr auto kLook = std::chrono::milliseconds(5);
constexpr auto kCallAgain = std::chrono::milliseconds(200);
constexpr std::size_t kLongestLine = 200;
constexpr std::string_view kGo = "go\n";  // behind rank 0's line, when it has all it waited for

/// What ranks say to each other.
struct Line {
  int rank = -1;
  int size = 0;
  std::string version;

  [[nodiscard]] std::string text() const {
    return fmt::format("lockstep-doctor {} {} {}\n", rank, size, version);
  }
  /// False if it is something else.
  static bool parse(const std::string& text, Line& line) {
    std::istringstream words(text);
    std::string word;
    return words >> word >> line.rank >> line.size >> line.version && word == "lockstep-doctor";
  }
};

/// Reads what is there; false once the other end has nothing more to say, or says too much.
bool read_some(sys::Connection& connection, std::string& text) {
  std::array<std::byte, kLongestLine> bytes{};
  const sys::Transfer moved = connection.read(bytes);
  text.append(reinterpret_cast<const char*>(bytes.data()), moved.bytes);
  return text.size() <= kLongestLine && moved.state == State::open;
}

bool has_line(const std::string& text) { return text.find('\n') != std::string::npos; }

/// Writes the rest of a line; true once all is written.
bool write_line(sys::Connection& connection, const std::string& line, std::size_t& sent) {
  const auto rest = std::as_bytes(std::span(line)).subspan(sent);
  if (!rest.empty()) sent += connection.write(rest).bytes;
  return sent == line.size();
}

}  // namespace

/// A rank that calls here.
struct Reach::Visit {
  std::unique_ptr<sys::Connection> connection;
  std::string text;
  std::size_t sent = 0;
  bool answered = false;  // rank 0 keeps those until it goes on
  bool over = false;
};

/// A rank that is called.
struct Reach::Call {
  int rank = 0;
  std::string address;
  std::unique_ptr<sys::Connection> connection;
  Time next_call{};
  std::size_t sent = 0;
  std::string text;
  bool was_open = false;  // now or in an earlier attempt
  std::string why;        // the last attempt failed
  bool reached = false;
  bool goes = false;   // rank 0 has said so
  bool ended = false;  // it has not, and will not
  Finding verdict;     // once reached
};

Reach::Reach(ReachOptions options)
    : options_(std::move(options)),
      own_line_(Line{options_.rank, static_cast<int>(options_.addresses.size()), options_.version}
                    .text()),
      network_(std::make_unique<sys::PosixNetwork>()),
      poller_(network_->poller()),
      visited_(options_.addresses.size()) {
  visited_[static_cast<std::size_t>(options_.rank)] = true;
  for (int rank = 0; rank < size(); ++rank) {
    const std::string& address = options_.addresses[static_cast<std::size_t>(rank)];
    if (rank == options_.rank || address.empty()) continue;
    Call call;
    call.rank = rank;
    call.address = address;
    calls_.push_back(std::move(call));
  }
}

Reach::~Reach() = default;

bool Reach::open() {
  const std::string& own = options_.addresses[static_cast<std::size_t>(options_.rank)];
  if (own.empty()) {
    findings_.push_back({Verdict::ok, "ports", "this rank chooses a port when it joins", ""});
    return true;
  }
  try {
    listener_ = network_->listen(own);
    findings_.push_back({Verdict::ok, "ports", fmt::format("{} is free to listen at", own), ""});
    return true;
  } catch (const Error& error) {
    findings_.push_back({Verdict::problem, "ports", error.what(),
                         "every rank must be able to listen at its own address"});
    return false;
  }
}

bool Reach::run(Deadline deadline) {
  while (!done() && !deadline.passed()) {
    accept_visitors();
    for (Visit& visit : visits_) serve(visit);
    for (Call& call : calls_) advance(call);
    visits_.erase(std::remove_if(visits_.begin(), visits_.end(),
                                 [](const Visit& visit) { return visit.over; }),
                  visits_.end());
    (void)poller_->wait(Deadline::after(kLook));
  }
  for (const Call& call : calls_) findings_.push_back(finding_of(call));
  std::vector<int> silent;
  for (int rank = 0; rank < size() && listener_; ++rank) {
    if (!visited_[static_cast<std::size_t>(rank)]) silent.push_back(rank);
  }
  if (!silent.empty()) {
    findings_.push_back(
        {Verdict::problem, "ports",
         fmt::format("rank {} did not call {}", fmt::join(silent, ", "), listener_->address()),
         "start it with the same environment, and let it through the firewall"});
  }
  const bool all_there = complete();
  // A rank that goes on calls rank 0 to join: nobody must be listening here for it by then.
  listener_.reset();
  for (const Visit& visit : visits_) {
    if (visit.answered && all_there) (void)visit.connection->write(std::as_bytes(std::span(kGo)));
  }
  visits_.clear();
  return all_there;
}

void Reach::accept_visitors() {
  if (!listener_) return;
  while (auto connection = listener_->accept()) {
    Visit visit;
    visit.connection = std::move(connection);
    visits_.push_back(std::move(visit));
  }
}

void Reach::serve(Visit& visit) {
  if (visit.answered) return;
  if (visit.sent == 0 && !has_line(visit.text) && read_some(*visit.connection, visit.text)) return;
  Line line;
  const bool known = Line::parse(visit.text, line) && line.rank >= 0 && line.rank < size();
  if (known && !write_line(*visit.connection, own_line_, visit.sent) &&
      visit.connection->error().ok()) {
    return;
  }
  if (known) visited_[static_cast<std::size_t>(line.rank)] = true;
  visit.answered = known;
  visit.over = !known || options_.rank != 0;
}

void Reach::advance(Call& call) {
  if (call.reached) return await_release(call);
  const Time now = MonotonicClock().now();
  if (!call.connection && now < call.next_call) return;
  try {
    if (!call.connection) {
      call.next_call = now + kCallAgain;
      call.sent = 0;
      call.text.clear();
      call.connection = network_->connect(call.address);
    }
    (void)write_line(*call.connection, own_line_, call.sent);
    raise_if_error(call.connection->error());
    if (!call.connection->is_open()) return;
    call.was_open = true;
    if (call.sent < own_line_.size()) return;
    const bool open = read_some(*call.connection, call.text);
    if (open && !has_line(call.text)) return;
    raise_if_error(call.connection->error());
    judge(call, call.text);
    if (!call.reached || call.rank != 0) call.connection.reset();
  } catch (const Error& error) {
    call.why = error.what();
    call.connection.reset();
  }
}

void Reach::await_release(Call& call) {
  if (!call.connection) return;
  const bool open = read_some(*call.connection, call.text);
  call.goes = call.text.ends_with(kGo);
  call.ended = !call.goes && !open;
  if (!open) call.connection.reset();
}

void Reach::judge(Call& call, const std::string& text) {
  Line line;
  if (!Line::parse(text, line)) {
    call.why = "what answers there is no lockstep doctor";
    return;
  }
  call.reached = true;
  const std::string who = fmt::format("rank {} at {}", call.rank, call.address);
  if (line.rank != call.rank || line.size != size()) {
    call.verdict = {Verdict::problem, "ports",
                    fmt::format("{} says that it is rank {} of {}", who, line.rank, line.size),
                    "compare the descriptions of the cluster on both hosts"};
  } else if (line.version != options_.version) {
    call.verdict = {
        Verdict::problem, "version",
        fmt::format("{} has version {}, this rank {}", who, line.version, options_.version),
        "install the same version everywhere"};
  } else {
    call.verdict = {Verdict::ok, "ports", fmt::format("{} answers", who), ""};
  }
}

bool Reach::done() const {
  const auto is_done = [](const Call& call) {
    return call.reached && (call.rank != 0 || call.goes || call.ended);
  };
  return std::all_of(calls_.begin(), calls_.end(), is_done) &&
         (!listener_ ||
          std::all_of(visited_.begin(), visited_.end(), [](bool was) { return was; }));
}

bool Reach::complete() const {
  return done() &&
         std::none_of(calls_.begin(), calls_.end(), [](const Call& call) { return call.ended; });
}

Finding Reach::finding_of(const Call& call) const {
  if (call.reached && call.ended && call.verdict.verdict == Verdict::ok) {
    return {Verdict::problem, "ports",
            fmt::format("rank {} at {} answers, but has not reached everybody", call.rank,
                        call.address),
            "see what it says itself"};
  }
  if (call.reached) return call.verdict;
  const std::string who = fmt::format("rank {} at {}", call.rank, call.address);
  if (call.was_open) {
    return {Verdict::problem, "ports",
            fmt::format("{}: connected, but no handshake: {}", who,
                        call.why.empty() ? "it says nothing" : call.why),
            "another program has the port, or the rank runs something else than lockstep doctor"};
  }
  if (call.why.empty()) {
    return {Verdict::problem, "ports", fmt::format("{}: the call is not answered", who),
            "the host is down or a firewall drops the packets: open the port for the hosts of the "
            "cluster"};
  }
  return {Verdict::problem, "ports", fmt::format("{}: {}", who, call.why),
          "the rank was not started, or has another address"};
}

}  // namespace lockstep::tool
