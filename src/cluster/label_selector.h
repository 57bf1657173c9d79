// LabelSelector: which pods are meant, in the words of Kubernetes.
//
//   a=b  a==b  a!=b  a in (b,c)  a notin (b,c)  a  !a          several with commas: all must hold
//
// As there, `!=` and `notin` hold too for a pod without the label, and an empty text selects all.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace lockstep::cluster {

class LabelSelector {
 public:
  struct Requirement {
    enum class Rule : unsigned char { in, not_in, exists, absent };

    Rule rule;
    std::string label;
    std::vector<std::string> values = {};
  };

  /// ConfigError with the byte for a text that is none.
  static LabelSelector parse(const std::string& text);

  [[nodiscard]] bool selects(const std::map<std::string, std::string>& labels) const;

 private:
  std::vector<Requirement> requirements_;
};

}  // namespace lockstep::cluster
