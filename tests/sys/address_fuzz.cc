// Any text is an address that prints as one that parses to the same, or a ConfigError.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "lockstep/error.h"
#include "sys/address.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using lockstep::sys::Address;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    const Address address = Address::parse(text);
    if (!(Address::parse(address.to_string()) == address)) std::abort();
  } catch (const lockstep::ConfigError&) {  // NOLINT(bugprone-empty-catch): the other right answer
  }
  return 0;
}
