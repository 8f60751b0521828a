// Bytes are tokens. Which stretch of the text a sample is, and every synthetic token, comes from Philox.
#include "runtime/samples/data.h"

#include <algorithm>
#include <stdexcept>
#include <string>
#include <vector>

#include "kernels/check.h"
#include "kernels/random.h"
#include "runtime/launch/typed_ops.h"

namespace seeksim::runtime {
namespace {

// Op ids of the data's random streams; parameters have their number, which stays far below.
constexpr std::uint32_t kOffsetStream = 0xdada0001u;
constexpr std::uint32_t kTokenStream = 0xdada0002u;
constexpr std::uint32_t kHeldOutStream = 0xdada0003u;

kernels::PhiloxCounter counter(std::uint32_t element, std::int64_t g, std::uint32_t stream) {
  // A sample's number takes 64 bits: its high half stands where a step would, which g already determines.
  return {element, static_cast<std::uint32_t>(g), stream, static_cast<std::uint32_t>(g >> 32)};
}

// Uniform in [0, n) from 64 random bits; the bias is below n * 2^-64.
std::uint64_t below(std::uint64_t n, std::uint32_t high, std::uint32_t low) {
  const auto random = static_cast<unsigned __int128>(std::uint64_t(high) << 32 | low);
  return static_cast<std::uint64_t>(random * n >> 64);
}

}  // namespace

// Training draws its stretches; held-out ones follow each other, and begin again at the end. Those of a data set follow
// each other, too, and are used in an order of their own.
kernels::Index DataSource::place_in_text(std::int64_t g, std::int64_t row) const {
  const auto places = static_cast<std::uint64_t>(text_bytes - context);
  if (held_out) return static_cast<kernels::Index>(static_cast<std::uint64_t>(g) * std::uint64_t(context) % places);
  if (sampler.on()) return row * context;
  const auto words = kernels::philox(counter(0, g, kOffsetStream), seed);
  return static_cast<kernels::Index>(below(places, words[0], words[1]));
}

void DataSource::sample(std::int64_t g, std::int32_t* tokens) const {
  const std::int64_t at = row(g);
  if (given != nullptr) {
    const std::int32_t* first = given + at % given_rows * (context + 1);
    std::copy(first, first + context + 1, tokens);
    for (std::int32_t i = 0; i <= context; ++i) {
      SEEKSIM_CHECK(tokens[i] >= 0 && tokens[i] < vocab, "token %d is not below the vocabulary of %d", tokens[i],
                    vocab);
    }
    return;
  }
  if (text == nullptr) {
    const std::uint32_t stream = held_out ? kHeldOutStream : kTokenStream;
    for (std::int32_t first = 0; first <= context; first += 4) {
      const auto words = kernels::philox(counter(static_cast<std::uint32_t>(first / 4), at, stream), seed);
      for (std::int32_t i = 0; i < 4 && first + i <= context; ++i) {
        tokens[first + i] = static_cast<std::int32_t>(below(static_cast<std::uint64_t>(vocab), words[i], 0));
      }
    }
    return;
  }
  const auto offset = place_in_text(g, at);
  for (std::int32_t i = 0; i <= context; ++i) {
    tokens[i] = static_cast<unsigned char>(text[offset + i]);
    SEEKSIM_CHECK(tokens[i] < vocab, "byte %d of the text is not below the vocabulary of %d", tokens[i], vocab);
  }
}

DataSource data_source(const Definition& definition) {
  DataSource source;
  source.sampler = Sampler(definition);
  source.seed = definition.training_seed;
  source.context = definition.model.context;
  source.vocab = definition.model.vocab;
  if (!definition.data.tokens.empty()) {
    const std::size_t row = static_cast<std::size_t>(source.context) + 1;
    if (definition.data.tokens.size() % row != 0) {
      throw std::runtime_error("the given tokens are not whole samples of " + std::to_string(row) + " (context + 1)");
    }
    source.given = definition.data.tokens.data();
    source.given_rows = static_cast<std::int64_t>(definition.data.tokens.size() / row);
    return source;
  }
  if (definition.data.synthetic) return source;
  const std::string& text = definition.data.bytes;
  const std::int64_t trained_on = std::int64_t(text.size()) - definition.data.held_out_bytes;
  if (trained_on < source.context + 1) {
    throw std::runtime_error("data.text holds " + std::to_string(trained_on) + " bytes to train on; a context of " +
                             std::to_string(source.context) + " needs at least " + std::to_string(source.context + 1));
  }
  source.text = text.data();
  source.text_bytes = trained_on;
  return source;
}

DataSource held_out_source(const Definition& definition) {
  DataSource source = data_source(definition);
  source.held_out = true;
  if (source.text == nullptr) return source;
  source.text += source.text_bytes;
  source.text_bytes = definition.data.held_out_bytes;
  SEEKSIM_CHECK(source.text_bytes > source.context, "%lld held-out bytes for a context of %d",
                static_cast<long long>(source.text_bytes), source.context);
  return source;
}

void launch_tokens(Launcher& launch, const char* site, const DataSource& data, std::int64_t first, kernels::Index count,
                   Mutant mutant, VecView<std::int32_t> inputs, VecView<std::int32_t> targets) {
  launch.launch(
      OpKind::data_load, "tokens", site, memory_cost(2 * count * data.context),
      [data, first, count, mutant](kernels::Lane lane, kernels::Vec<std::int32_t> in, kernels::Vec<std::int32_t> out) {
        std::vector<std::int32_t> tokens(static_cast<std::size_t>(data.context) + 1);
        std::vector<std::int32_t> all_inputs, all_targets;
        for (kernels::Index i = 0; i < count; ++i) {
          data.sample(first + source_of_sample(mutant, i), tokens.data());
          const auto target = tokens.begin() + target_shift(mutant);
          if (in.n > 0) all_inputs.insert(all_inputs.end(), tokens.begin(), tokens.end() - 1);
          if (out.n > 0) all_targets.insert(all_targets.end(), target, target + data.context);
        }
        kernels::write_values(lane, all_inputs.data(), in);
        kernels::write_values(lane, all_targets.data(), out);
      },
      inputs, targets);
}

std::int64_t batch_of_step(std::span<const std::int64_t> dropped, std::int64_t step) {
  std::int64_t batch = step;
  for (const std::int64_t bad : dropped) {
    if (bad > batch) break;
    ++batch;
  }
  return batch;
}

}  // namespace seeksim::runtime
