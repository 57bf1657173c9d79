#include "doctor/examination.h"

#include <fmt/format.h>

#include "all_texts.h"
#include "base/deadline.h"
#include "base/status.h"
#include "doctor/clocks.h"
#include "doctor/machine.h"
#include "doctor/names.h"
#include "doctor/place.h"
#include "doctor/reach.h"
#include "doctor/sharing.h"

namespace lockstep::tool {
namespace {

void append(Findings& to, const Findings& more) { to.insert(to.end(), more.begin(), more.end()); }

/// True if it makes sense to join.
bool reach_others(const Place& place, const ExaminationOptions& options, Findings& findings) {
  if (place.without_ports()) {
    findings.push_back({Verdict::ok, "ports",
                        "none is opened: all ranks are on this host and meet at Unix sockets", ""});
    return true;
  }
  Reach reach({.addresses = place.joining->addresses,
               .rank = place.joining->rank,
               .version = options.version});
  const bool open = reach.open();
  const bool complete = options.joins && open && reach.run(Deadline::after(options.timeout));
  append(findings, reach.findings());
  return complete;
}

/// Ranks that compute on different processors.
Findings compare_arithmetic(coll::Session& group) {
  const std::vector<std::string> processors = all_texts(group, processor_text());
  Findings findings;
  for (std::size_t rank = 1; rank < processors.size(); ++rank) {
    if (processors[rank] == processors[0]) continue;
    findings.push_back(
        {Verdict::warning, "bits",
         fmt::format("rank {} computes on {}, rank 0 on {}", rank, processors[rank], processors[0]),
         "libraries that choose by the processor may give other bits on it"});
  }
  if (findings.empty()) {
    findings.push_back({Verdict::ok, "bits", "all ranks compute on " + processors[0], ""});
  }
  return findings;
}

/// The group is there: what only all ranks together can find out.
void examine_group(coll::Session& group, Diagnosis& diagnosis) {
  diagnosis.transport = group.transport();
  Findings own = compare_arithmetic(group);
  if (group.rank() != 0) own.clear();
  append(own, check_sharing(group));
  append(own, check_clocks(group));
  own.push_back({Verdict::ok, "join",
                 fmt::format("{} ranks joined over {}", group.size(), group.transport()), ""});
  append(diagnosis.findings, own);
  diagnosis.pairs = measure_pairs(group);
  const std::vector<std::string> all = all_texts(group, encode(diagnosis.findings));
  diagnosis.findings.clear();
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    append(diagnosis.findings, decode(all[rank], static_cast<int>(rank)));
  }
  diagnosis.joined = true;
}

void join_others(const Place& place, const ExaminationOptions& options, Diagnosis& diagnosis) {
  coll::JoinOptions joining = *place.joining;
  joining.timeout = options.timeout;
  const char* doing = "join";
  try {
    coll::Session group = coll::join(joining);
    doing = "session";
    examine_group(group, diagnosis);
  } catch (const Error& error) {
    diagnosis.findings.push_back({Verdict::problem, doing, error.what(), ""});
  }
}

}  // namespace

Diagnosis examine(const ExaminationOptions& options) {
  const Place place = find_place();
  Diagnosis diagnosis{.rank = place.rank, .size = place.size};
  diagnosis.findings = place.findings;
  append(diagnosis.findings, check_machine(place.local_ranks()));
  if (place.joining) {
    append(diagnosis.findings, check_names(place.joining->addresses, place.rank));
    if (place.size > 1) {
      const bool complete = reach_others(place, options, diagnosis.findings);
      if (options.joins && complete) {
        join_others(place, options, diagnosis);
      } else if (options.joins) {
        diagnosis.findings.push_back(
            {Verdict::problem, "join", "not tried: not every rank reaches every other", ""});
      }
    }
  }
  if (!diagnosis.joined) {
    for (Finding& finding : diagnosis.findings) finding.rank = diagnosis.rank;
  }
  return diagnosis;
}

}  // namespace lockstep::tool
