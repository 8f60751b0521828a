// libFuzzer's side of tests/fuzz. SEEKSIM_FUZZ_TARGET names the target.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "tests/fuzz/mutated_text.h"
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

const seeksim::fuzz::Target& the_target() {
  static const seeksim::fuzz::Target kTarget = chosen();
  return kTarget;
}

}  // namespace

extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t size_max);

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  the_target().take({reinterpret_cast<const char*>(data), size});
  return 0;
}

// Every fourth change of a text is one of tokens.
extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size, std::size_t size_max,
                                               unsigned seed) {
  if (!the_target().is_text || seed % 4 != 0) return LLVMFuzzerMutate(data, size, size_max);
  const std::string text = seeksim::fuzz::mutated_text({reinterpret_cast<const char*>(data), size}, seed / 4);
  if (text.empty() || text.size() > size_max) return LLVMFuzzerMutate(data, size, size_max);
  std::memcpy(data, text.data(), text.size());
  return text.size();
}
