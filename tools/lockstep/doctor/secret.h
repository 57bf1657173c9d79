// Checks of the key: whether there is one, and whether its file is private.
#pragma once

#include "doctor/finding.h"

namespace lockstep::tool {

/// What the ranks of a cluster need: those of one host need no key.
enum class Spread : unsigned char { one_host, several_hosts };

/// Looks at LOCKSTEP_KEY, LOCKSTEP_KEY_FILE, LOCKSTEP_INSECURE and LOCKSTEP_PLAINTEXT_DATA.
Finding check_key(Spread spread);

}  // namespace lockstep::tool
