#include "reference/random.h"

#include <algorithm>
#include <cmath>

namespace seeksim::reference {
namespace {

constexpr std::uint32_t kOffsets = 0xdada0001U, kTokens = 0xdada0002U, kHeldOut = 0xdada0003U, kDropout = 0xd0000000U,
                        kStart = 0xffffffffU;

// A number in [0, n) from 64 random bits.
std::uint64_t below(std::uint64_t n, std::uint32_t high, std::uint32_t low) {
  const auto bits = static_cast<unsigned __int128>(std::uint64_t(high) << 32 | low);
  return static_cast<std::uint64_t>(bits * n >> 64);
}

void draw_tokens(const Training& t, std::int64_t g, std::uint32_t stream, std::int32_t* out) {
  const auto low = static_cast<std::uint32_t>(g), high = static_cast<std::uint32_t>(g >> 32);
  for (int i = 0; i <= t.model.T; ++i) {
    const auto words = philox({std::uint32_t(i / 4), low, stream, high}, t.seed);
    out[i] = static_cast<std::int32_t>(below(std::uint64_t(t.model.V), words[std::size_t(i % 4)], 0));
  }
}

// One of n numbers for each of n, by eight rounds over the two halves of a number's bits; numbers beyond go on.
std::int64_t shuffled(const Sampler& s, std::int64_t epoch, std::int64_t index) {
  unsigned bits = 1;
  while (std::int64_t(1) << (2 * bits) < s.samples) ++bits;
  const std::int64_t halves = std::int64_t(1) << bits;
  std::int64_t number = index;
  do {
    std::int64_t a = number / halves, b = number % halves;
    for (std::uint32_t round = 0; round < 8; ++round) {
      const auto words =
          philox({std::uint32_t(b), std::uint32_t(epoch), 0xdada1000U + round, std::uint32_t(epoch >> 32)}, s.seed);
      const std::int64_t c = a ^ (std::int64_t(words[0]) % halves);
      a = b, b = c;
    }
    number = a * halves + b;
  } while (number >= s.samples);
  return number;
}

void draw_sample(const Training& t, std::int64_t place, std::int32_t* out) {
  const int T = t.model.T;
  const std::int64_t g = row_of(t, place);
  const auto low = static_cast<std::uint32_t>(g), high = static_cast<std::uint32_t>(g >> 32);
  if (!t.data.tokens.empty()) {
    const std::int64_t rows = std::int64_t(t.data.tokens.size()) / (T + 1);
    for (int i = 0; i <= T; ++i) out[i] = t.data.tokens[std::size_t(g % rows * (T + 1) + i)];
  } else if (!t.data.text.empty() && t.data.sampler.on) {
    for (int i = 0; i <= T; ++i) out[i] = static_cast<unsigned char>(t.data.text[std::size_t(g * T + i)]);
  } else if (!t.data.text.empty()) {
    const auto words = philox({0, low, kOffsets, high}, t.seed);
    const std::uint64_t at = below(t.data.text.size() - std::uint64_t(T), words[0], words[1]);
    for (int i = 0; i <= T; ++i) out[i] = static_cast<unsigned char>(t.data.text[at + std::uint64_t(i)]);
  } else {
    draw_tokens(t, g, kTokens, out);
  }
}

}  // namespace

std::array<std::uint32_t, 4> philox(std::array<std::uint32_t, 4> c, std::uint64_t key) {
  auto k0 = static_cast<std::uint32_t>(key), k1 = static_cast<std::uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t a = std::uint64_t(0xD2511F53U) * c[0], b = std::uint64_t(0xCD9E8D57U) * c[2];
    c = {std::uint32_t(b >> 32) ^ c[1] ^ k0, std::uint32_t(b), std::uint32_t(a >> 32) ^ c[3] ^ k1, std::uint32_t(a)};
    k0 += 0x9E3779B9U;
    k1 += 0xBB67AE85U;
  }
  return c;
}

// By Newton's method on the distribution itself, from a start that is good to two digits.
double normal_quantile(double p) {
  if (p > 0.5) return -normal_quantile(1 - p);
  const double t = std::sqrt(-2 * std::log(p));
  double x = -(t - (2.30753 + 0.27061 * t) / (1 + t * (0.99229 + t * 0.04481)));
  for (int i = 0; i < 8; ++i) {
    const double error = std::erfc(-x / std::sqrt(2.0)) / 2 - p;
    x -= error / (std::exp(-x * x / 2) / std::sqrt(2 * M_PI));
  }
  return x;
}

double standard_normal(std::uint64_t seed, std::uint32_t stream, std::uint64_t element) {
  const std::uint64_t block = element / 4;
  const auto words = philox({std::uint32_t(block), std::uint32_t(block >> 32), stream, kStart}, seed);
  return normal_quantile((double(words[element % 4] >> 8) + 0.5) * 0x1p-24);
}

std::int64_t row_of(const Training& t, std::int64_t g) {
  const Sampler& s = t.data.sampler;
  if (!s.on) return g;
  const std::int64_t used = s.drop_last ? s.samples / t.batch * t.batch : s.samples;
  return s.shuffled ? shuffled(s, g / used, g % used) : g % used;
}

std::int64_t learned_tokens(const Training& t, std::int64_t step) {
  const Curriculum& c = t.curriculum;
  if (!c.on) return t.model.T;
  const std::int64_t number = step + 1;
  if (c.discrete) {
    for (std::size_t i = 0; i < c.max_steps.size(); ++i)
      if (number <= c.max_steps[i]) return c.difficulties[i];
    return c.difficulties.back();
  }
  const double grown = std::pow(double(number) / double(c.total), 1 / c.root) * double(c.most - c.least);
  const double nearly = c.root == 1 || c.root == 2 ? 0 : 1e-9;  // other roots end in bits of a library
  auto tokens = static_cast<std::int64_t>(std::floor(grown + double(c.least) + nearly));
  tokens -= tokens % c.each;
  std::int64_t first = c.each;
  while (first < c.least) first += c.each;
  return std::min(std::max(tokens, first), c.most);
}

std::vector<std::int32_t> tokens_of_step(const Training& t, std::int64_t step) {
  std::int64_t batch = step;
  for (const std::int64_t dropped : t.dropped_batches) batch += dropped <= batch ? 1 : 0;
  const std::size_t row = std::size_t(t.model.T) + 1;
  std::vector<std::int32_t> tokens(std::size_t(t.batch) * row);
  for (int b = 0; b < t.batch; ++b) draw_sample(t, batch * t.batch + b, tokens.data() + std::size_t(b) * row);
  return tokens;
}

std::vector<std::int32_t> held_out_tokens(const Training& t) {
  const std::size_t T = std::size_t(t.model.T);
  const std::string& text = t.held_out.text;
  std::vector<std::int32_t> tokens;
  for (std::size_t g = 0; g < std::size_t(t.held_out.samples); ++g) {
    const std::size_t at = text.empty() ? 0 : g * T % (text.size() - T);
    tokens.resize((g + 1) * (T + 1));
    std::int32_t* const out = tokens.data() + g * (T + 1);
    if (text.empty()) draw_tokens(t, std::int64_t(g), kHeldOut, out);
    for (std::size_t i = 0; !text.empty() && i <= T; ++i) out[i] = static_cast<unsigned char>(text[at + i]);
  }
  return tokens;
}

double dropout_factor(const Training& t, double rate, Site site, int layer, std::int64_t step, std::int64_t sample,
                      std::uint64_t element) {
  if (rate == 0) return 1;
  const auto stream = kDropout + std::uint32_t(layer) * 4 + std::uint32_t(site);
  const auto counter = static_cast<std::uint32_t>(element / 64 * 16 + element % 16);
  const auto words = philox({counter, std::uint32_t(sample), stream, std::uint32_t(step)}, t.seed);
  const double uniform = double(words[element % 64 / 16] >> 8) * 0x1p-24;
  return uniform >= rate ? double(static_cast<float>(1 / (1 - rate))) : 0;
}

}  // namespace seeksim::reference
