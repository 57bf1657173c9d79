// The devices that a strategy is given.
#pragma once

#include "lockstep/device_table.h"

namespace lockstep::detail {

/// Those given, or the table's default. ConfigError for one that does not exist, InvalidUsage for
/// one given twice; `strategy` is its name, for messages.
DeviceList checked_devices(const char* strategy, DeviceList devices, const DeviceTable& table);

}  // namespace lockstep::detail
