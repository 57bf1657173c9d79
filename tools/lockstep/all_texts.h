// all_texts: every rank's text on every rank.
#pragma once

#include <string>
#include <vector>

#include "lockstep/coll/session.h"

namespace lockstep::tool {

/// A collective; the texts by rank.
std::vector<std::string> all_texts(coll::Session& group, const std::string& own);

}  // namespace lockstep::tool
