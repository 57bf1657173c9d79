// Any text as a PodList, behind a line that is a label selector: a cluster, the same for both ways
// to give the list, or a ConfigError that names the list or the selector.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "lockstep/error.h"
#include "lockstep/kubernetes_resolver.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace lockstep;
  const std::string input(reinterpret_cast<const char*>(data), size);
  const std::size_t line = std::min(input.find('\n'), input.size());
  const std::string selector = input.substr(0, line);
  const std::string text = line < input.size() ? input.substr(line + 1) : "";
  try {
    const KubernetesOptions options{.jobs = {{"ps", {"role=ps"}}, {"worker", {selector}}}};
    const ClusterSpec given = KubernetesResolver(PodList::of_text(text), options).cluster_spec();
    const ClusterSpec fetched =
        KubernetesResolver(PodList::from([&text] { return text; }), options).cluster_spec();
    if (given != fetched || !given.has_job("ps") || !given.has_job("worker")) std::abort();
  } catch (const ConfigError& e) {
    const std::string message = e.what();
    if (message.rfind("pod list", 0) != 0 && message.rfind("label selector", 0) != 0) std::abort();
  }
  return 0;
}
