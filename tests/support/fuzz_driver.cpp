// libFuzzer's side of tests/fuzz. SEEKSIM_FUZZ_TARGET names the target.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "tests/fuzz/targets.h"

namespace {

const seeksim::fuzz::Target& chosen() {
  const char* const name = std::getenv("SEEKSIM_FUZZ_TARGET");
  for (const seeksim::fuzz::Target& target : seeksim::fuzz::targets()) {
    if (name != nullptr && std::strcmp(target.name, name) == 0) return target;
  }
  std::fprintf(stderr, "SEEKSIM_FUZZ_TARGET is one of:");
  for (const seeksim::fuzz::Target& target : seeksim::fuzz::targets()) std::fprintf(stderr, " %s", target.name);
  std::fprintf(stderr, "\n");
  std::exit(2);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const seeksim::fuzz::Target kTarget = chosen();
  kTarget.take({reinterpret_cast<const char*>(data), size});
  return 0;
}
