#include "sim/fiber.h"

#include <cxxabi.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <utility>

#include "sys/os_error.h"

#if defined(__SANITIZE_ADDRESS__)
#define LOCKSTEP_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define LOCKSTEP_ASAN 1
#endif
#endif
#if defined(__SANITIZE_THREAD__)
#define LOCKSTEP_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define LOCKSTEP_TSAN 1
#endif
#endif
#ifdef LOCKSTEP_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#ifdef LOCKSTEP_TSAN
#include <sanitizer/tsan_interface.h>
#endif

namespace lockstep::sim {
namespace {

// OpenSSL's handshake is the deepest that runs on one. Pages that are not used cost nothing.
constexpr std::size_t kStackBytes = std::size_t{512} << 10;

std::size_t page_bytes() { return static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)); }

}  // namespace

Fiber::Fiber(std::function<void()> body) : body_(std::move(body)) {
  const std::size_t guard = page_bytes();
  memory_ = ::mmap(nullptr, kStackBytes + guard, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
  if (memory_ == MAP_FAILED) raise(sys::os_error("cannot have a stack for a fiber", errno));
  ::mprotect(memory_, guard, PROT_NONE);  // an overflow ends the program here
  ::getcontext(&own_);
  own_.uc_stack.ss_sp = static_cast<std::byte*>(memory_) + guard;
  own_.uc_stack.ss_size = kStackBytes;
  own_.uc_link = nullptr;
  const auto self = reinterpret_cast<std::uintptr_t>(this);
  // makecontext passes ints.
  ::makecontext(&own_, reinterpret_cast<void (*)()>(&Fiber::enter), 2,
                static_cast<unsigned>(self & 0xFFFFFFFFU), static_cast<unsigned>(self >> 32));
#ifdef LOCKSTEP_TSAN
  own_shadow_ = __tsan_create_fiber(0);
#endif
}

Fiber::~Fiber() {
#ifdef LOCKSTEP_TSAN
  __tsan_destroy_fiber(own_shadow_);
#endif
#ifdef LOCKSTEP_ASAN
  __asan_unpoison_memory_region(own_.uc_stack.ss_sp, own_.uc_stack.ss_size);
#endif
  ::munmap(memory_, kStackBytes + page_bytes());
}

Fiber::Exceptions Fiber::exchange_exceptions(const Exceptions& with) {
  // The two members that the C++ ABI gives __cxa_eh_globals.
  Exceptions before;
  void* globals = abi::__cxa_get_globals();
  std::memcpy(&before.caught, globals, sizeof(void*));
  std::memcpy(&before.uncaught, static_cast<std::byte*>(globals) + sizeof(void*), sizeof(unsigned));
  std::memcpy(globals, &with.caught, sizeof(void*));
  std::memcpy(static_cast<std::byte*>(globals) + sizeof(void*), &with.uncaught, sizeof(unsigned));
  return before;
}

void Fiber::resume() {
  const Exceptions mine = exchange_exceptions(exceptions_);
#ifdef LOCKSTEP_TSAN
  resumer_shadow_ = __tsan_get_current_fiber();
  __tsan_switch_to_fiber(own_shadow_, 0);
#endif
#ifdef LOCKSTEP_ASAN
  void* fake = nullptr;
  __sanitizer_start_switch_fiber(&fake, own_.uc_stack.ss_sp, own_.uc_stack.ss_size);
#endif
  ::swapcontext(&resumer_, &own_);
#ifdef LOCKSTEP_ASAN
  __sanitizer_finish_switch_fiber(fake, nullptr, nullptr);
#endif
  exceptions_ = exchange_exceptions(mine);
}

void Fiber::suspend() { leave_to_resumer(false); }

void Fiber::leave_to_resumer(bool for_ever) {
#ifdef LOCKSTEP_TSAN
  __tsan_switch_to_fiber(resumer_shadow_, 0);
#endif
#ifdef LOCKSTEP_ASAN
  __sanitizer_start_switch_fiber(for_ever ? nullptr : &fake_stack_, resumer_stack_,
                                 resumer_stack_bytes_);
#else
  (void)for_ever;
#endif
  ::swapcontext(&own_, &resumer_);
#ifdef LOCKSTEP_ASAN
  __sanitizer_finish_switch_fiber(fake_stack_, &resumer_stack_, &resumer_stack_bytes_);
#endif
}

void Fiber::enter(unsigned low, unsigned high) {
  auto* self = reinterpret_cast<Fiber*>(static_cast<std::uintptr_t>(high) << 32 | low);
#ifdef LOCKSTEP_ASAN
  __sanitizer_finish_switch_fiber(nullptr, &self->resumer_stack_, &self->resumer_stack_bytes_);
#endif
  self->run();
}

void Fiber::run() {
  body_();
  body_ = nullptr;
  over_ = true;
  leave_to_resumer(true);
}

}  // namespace lockstep::sim
