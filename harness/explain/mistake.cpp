#include "harness/explain/mistake.h"

#include <array>

namespace seeksim::harness {
namespace {

struct MistakeRow {
  std::string_view name, text;
};
constexpr std::array<MistakeRow, std::size_t(Mistake::count_)> kMistakes = {{
    {"unknown", "nothing is known of it"},
    {"data", "which samples a step takes"},
    {"forward", "activations, and the loss that they end in"},
    {"gradient", "what backward and accumulation make on one rank"},
    {"reduction", "sums over ranks: data, tensor ways, stages that share a parameter"},
    {"norm", "the gradient's norm"},
    {"update", "the optimizer, and the scalars that it is given"},
    {"publication", "updated or gathered parameters, on their way to those who use them"},
    {"message", "a message that arrives with another content"},
    {"order", "memory that is used before it may be"},
    {"matching", "calls of ranks that do not fit together"},
    {"agreement", "what counts as committed, and who says so"},
    {"state", "what is saved, copied, read back, or handed to others"},
    {"placement", "who holds what"},
    {"budget", "more memory, traffic or time than it takes, with the right values"},
    {"machine", "a rank, a link or a device that failed"},
}};

}  // namespace

std::string_view name(Mistake mistake) { return kMistakes[std::size_t(mistake)].name; }
std::string_view mistake_text(Mistake mistake) { return kMistakes[std::size_t(mistake)].text; }
Mistake mistake_named(std::string_view name) {
  for (std::size_t i = 0; i < kMistakes.size(); ++i) {
    if (kMistakes[i].name == name) return Mistake(i);
  }
  return Mistake::unknown;
}

}  // namespace seeksim::harness
