#include "plan/check.h"

#include <algorithm>

#include "plan/form.h"
#include "plan/machine.h"

namespace lockstep::plan {

Verdict check(const Request& request, const Layout& layout, const std::vector<Plan>& plans,
              const CheckOptions& options) {
  if (options.repetitions < 1 || options.slots < 1) return {.problem = "nothing to check"};
  std::string problem = find_malformed(request, layout, plans, options.aliasing);
  if (!problem.empty()) return {.problem = std::move(problem)};
  return Machine(request, layout, plans, options).run();
}

std::vector<Plan> make_all(const Algorithm& algorithm, const Request& request,
                           const Layout& layout) {
  std::vector<Plan> plans;
  plans.reserve(static_cast<std::size_t>(layout.ranks()));
  for (int rank = 0; rank < layout.ranks(); ++rank) {
    plans.push_back(algorithm.make(request, layout, rank));
  }
  return plans;
}

Verdict check(const Algorithm& algorithm, const Request& request, const Layout& layout,
              const CheckOptions& options) {
  const std::vector<Plan> plans = make_all(algorithm, request, layout);
  Verdict verdict = check(request, layout, plans, options);
  if (verdict.problem.empty() && algorithm.access == Access::messages) {
    verdict.problem = find_shared_use(plans);
  }
  return verdict;
}

}  // namespace lockstep::plan
