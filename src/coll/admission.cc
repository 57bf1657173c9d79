#include "coll/admission.h"

#include <fmt/format.h>

#include <sstream>

#include "base/env.h"
#include "base/log.h"
#include "base/printable.h"
#include "sys/own_process.h"

namespace lockstep::coll {

namespace {

/// What counts: the option, or the environment's where it is empty.
const std::string& effective(const std::string& option, const std::string& setting) {
  return option.empty() ? setting : option;
}
const std::string& algorithms(const JoinOptions& options) {
  return effective(options.options.algorithms, environment().algorithms);
}
const std::string& costs(const JoinOptions& options) {
  return effective(options.options.costs, environment().costs);
}

}  // namespace

std::string agreed_options(const JoinOptions& options) {
  return fmt::format("algorithms={} costs={} plaintext_data={}", algorithms(options),
                     costs(options), options.plaintext_data);
}

std::string agreed_lines(const JoinOptions& options) {
  std::string lines = fmt::format(
      "number of ranks: {}\nalgorithms: {}\ncosts: {}\nplaintext_data: {}\n",
      options.addresses.size(), algorithms(options), costs(options), options.plaintext_data);
  for (std::size_t rank = 0; rank < options.addresses.size(); ++rank) {
    lines += fmt::format("address of rank {}: {}\n", rank, options.addresses[rank]);
  }
  return lines;
}

std::string first_difference(const std::string& rank_0, const std::string& own) {
  std::istringstream theirs(rank_0);
  std::istringstream ours(own);
  std::string their_line;
  std::string our_line;
  while (std::getline(theirs, their_line) && !theirs.eof()) {  // the last may be cut off
    our_line.clear();
    std::getline(ours, our_line);
    if (their_line == our_line) continue;
    return fmt::format("rank 0 was given \"{}\", this rank \"{}\"", one_line(their_line), our_line);
  }
  return {};
}

std::string double_claim(const wire::Hello& first, const wire::Hello& second) {
  return fmt::format(
      "that rank has joined already as {} (last in generation {}), and a second process claims it: "
      "{} (last in generation {}); end one of them, or give each a rank of its own; {}",
      wire::describe_process(first), first.generation, wire::describe_process(second),
      second.generation, kOtherPorts);
}

Status objection(const wire::Hello& caller, const wire::Hello& own, const JoinOptions& options,
                 const wire::Hello* taken) {
  const auto refused = [&](Code code, const std::string& why) {
    return Status(ErrorKind::config_error, code,
                  fmt::format("{} cannot join: {}", wire::describe(caller), why), {});
  };
  if (caller.library != own.library) {
    return refused(Code::failed_precondition,
                   fmt::format("it has version {} of lockstep, rank 0 {} in {}",
                               wire::version_text(caller.library), wire::version_text(own.library),
                               sys::process_binary()));
  }
  if (caller.size != own.size) {
    return refused(Code::invalid_argument, fmt::format("it was given {} ranks, rank 0 {}; {}",
                                                       caller.size, own.size, kOtherPorts));
  }
  if (caller.cluster != own.cluster) {
    const std::string& entry = options.addresses[static_cast<std::size_t>(caller.rank)];
    return refused(
        Code::invalid_argument,
        fmt::format("it was given other addresses than rank 0: it listens at \"{}\", and "
                    "rank 0 knows it as \"{}\" and itself as \"{}\"; compare the "
                    "descriptions of the cluster; {}",
                    caller.address_text(), entry, options.addresses.front(), kOtherPorts));
  }
  if (caller.options != own.options) {
    return refused(Code::invalid_argument, fmt::format("it was given other options; rank 0 has {}",
                                                       agreed_options(options)));
  }
  if (caller.rank == 0) {
    return refused(Code::already_exists,
                   "rank 0 is the process it called: " + double_claim(own, caller));
  }
  if (taken != nullptr) {
    return refused(Code::already_exists, double_claim(*taken, caller));
  }
  if (caller.arithmetic != own.arithmetic) {
    const std::string difference = fmt::format(
        "{} computes with other libraries or settings than rank 0 ({}): results will not have the "
        "same bits on every layout",
        wire::describe(caller), options.arithmetic);
    if (options.require_same_bits) return refused(Code::failed_precondition, difference);
    log_warning("{}", difference);
  }
  return {};
}

}  // namespace lockstep::coll
