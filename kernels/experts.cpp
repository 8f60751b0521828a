// Checks of shapes, and the products of experts: rows of one expert are gathered, so that its product is a gemm.
#include "kernels/experts.h"

#include <algorithm>
#include <cstring>
#include <type_traits>
#include <vector>

#include "kernels/check.h"
#include "kernels/device_table.h"
#include "kernels/isa/table.h"
#include "kernels/tree.h"

namespace seeksim::kernels {
namespace {

void check_router(const Router& r, Index rows) {
  SEEKSIM_CHECK(r.experts > 0 && r.choices > 0 && r.choices <= r.experts && r.tokens > 0 && r.capacity >= 0,
                "%d experts, %d choices, %lld tokens, capacity %lld", r.experts, r.choices,
                static_cast<long long>(r.tokens), static_cast<long long>(r.capacity));
  SEEKSIM_CHECK_EQ(rows % r.tokens, 0);
  SEEKSIM_CHECK(r.scale > 0, "gates times %g", double(r.scale));
}

// Rows of T that belong to some slots, one below the other.
template <class T>
struct Rows {
  std::vector<T> values;
  Mat<T> mat;

  Rows(std::size_t rows, Index cols) : values(rows * std::size_t(cols)) {
    mat = {values.data(), Index(rows), cols, cols};
  }
};

bool is_taken(std::int32_t slot) { return slot >= 0; }

void check_slots(Vec<const std::int32_t> slots, Index experts) {
  for (Index s = 0; s < slots.n; ++s)
    SEEKSIM_CHECK(slots[s] < experts && slots[s] >= -experts, "slot %lld has expert %d of %lld",
                  static_cast<long long>(s), slots[s], static_cast<long long>(experts));
}

Index row_of(Index slot, int choices, RowOf of) { return of == RowOf::token ? slot / choices : slot; }

template <class T>
Rows<T> gather(const std::vector<Index>& slots, int choices, Mat<const T> x, RowOf of) {
  Rows<T> rows(slots.size(), x.cols);
  for (std::size_t i = 0; i < slots.size(); ++i)
    std::memcpy(rows.mat.row(Index(i)), x.row(row_of(slots[i], choices, of)), std::size_t(x.cols) * sizeof(T));
  return rows;
}

// Slots [first, end) that expert e takes.
std::vector<Index> slots_of(Vec<const std::int32_t> slots, Index first, Index end, Index e) {
  std::vector<Index> own;
  for (Index s = first; s < end; ++s)
    if (slots[s] == e) own.push_back(s);
  return own;
}

// F3 over matrices that come one by one.
class MatrixTree {
 public:
  explicit MatrixTree(std::size_t size) : size_(size) {}

  std::vector<float>& leaf() { return stack_.emplace_back(size_); }
  // The last leaf is complete.
  void push() {
    for (Index c = count_++; c & 1; c >>= 1) fold();
  }
  const std::vector<float>& finish() {
    while (stack_.size() > 1) fold();
    return stack_.front();
  }

 private:
  void fold() {
    std::vector<float>& left = stack_[stack_.size() - 2];
    elements_in<float>().add(left.data(), stack_.back().data(), left.data(), Index(size_));
    stack_.pop_back();
  }
  std::size_t size_;
  Index count_ = 0;
  std::vector<std::vector<float>> stack_;
};

}  // namespace

void route(Lane lane, const Router& router, Mat<const float> logits, const Routes& out) {
  check_router(router, logits.rows);
  const Index slots = logits.rows * router.choices;
  SEEKSIM_CHECK_EQ(logits.cols, router.experts);
  SEEKSIM_CHECK_EQ(out.slots.n, slots);
  SEEKSIM_CHECK_EQ(out.gates.n, slots);
  SEEKSIM_CHECK_EQ(out.shares.rows, logits.rows / router.tokens);
  SEEKSIM_CHECK(out.probs.rows == logits.rows && out.spreads.n == logits.rows && out.losses.n == logits.rows,
                "%lld rows of logits", static_cast<long long>(logits.rows));
  if (const DeviceTable* device = device_of(lane)) return device->common.route(lane, router, logits, out);
  elements().route(router, logits, out);
}

template <class T>
void route_backward(Lane lane, const Router& router, Mat<const float> probs, Vec<const std::int32_t> slots,
                    Vec<const float> gates, Mat<const float> shares, Vec<const float> spreads, Vec<const float> dgates,
                    float scale, OutMat<T> dlogits) {
  check_router(router, probs.rows);
  SEEKSIM_CHECK_EQ(slots.n, probs.rows * router.choices);
  SEEKSIM_CHECK_EQ(dgates.n, slots.n);
  SEEKSIM_CHECK_EQ(dlogits.rows, probs.rows);
  SEEKSIM_CHECK_EQ(dlogits.cols, router.experts);
  if (const DeviceTable* device = device_of(lane))
    return device->experts<T>().route_backward(lane, router, probs, slots.data, gates.data, shares, spreads.data,
                                               dgates.data, scale, dlogits);
  elements_in<T>().route_backward(router, probs, slots.data, gates.data, shares, spreads.data, dgates.data, scale,
                                  dlogits);
}

void add_token_losses(Lane lane, Mat<const float> more, Vec<float> losses) {
  SEEKSIM_CHECK_EQ(more.cols, losses.n);
  if (const DeviceTable* device = device_of(lane)) return device->common.add_token_losses(lane, more, losses);
  for (Index l = 0; l < more.rows; ++l) elements_in<float>().accumulate(losses.data, more.row(l), losses.n);
}

template <class T, class To>
void expert_product(Lane lane, Vec<const std::int32_t> slots, int choices, InMat<T> x, RowOf of, InMat<T> w, Trans tw,
                    Index segment, OutMat<To> y) {
  const bool transposed = tw == Trans::yes;
  const Index of_expert = transposed ? y.cols : x.cols;
  SEEKSIM_CHECK_EQ(slots.n, y.rows);
  SEEKSIM_CHECK_EQ(x.rows, of == RowOf::token ? y.rows / choices : y.rows);
  SEEKSIM_CHECK_EQ(w.cols, transposed ? x.cols : y.cols);
  SEEKSIM_CHECK_EQ(w.rows % of_expert, 0);
  const Index each = segment > 0 ? segment : std::max<Index>(x.cols, 1);
  if (const DeviceTable* device = device_of(lane)) {
    if constexpr (std::is_same_v<T, To>)
      return device->experts<T>().product(lane, slots.data, choices, x, of, w, transposed, each, y);
    else
      return device->experts<T>().node(lane, slots.data, choices, x, of, w, transposed, each, y);
  }
  check_slots(slots, w.rows / of_expert);
  for (Index s = 0; s < slots.n; ++s)
    if (slots[s] < 0) std::fill_n(y.row(s), y.cols, To{});
  for (Index e = 0; e < w.rows / of_expert; ++e) {
    const std::vector<Index> own = slots_of(slots, 0, slots.n, e);
    if (own.empty()) continue;
    const Rows<T> rows = gather<T>(own, choices, x, of);
    Rows<To> made(own.size(), y.cols);
    gemm<T, To>(by_contract(lane), Trans::no, tw, rows.mat, {w.row(e * of_expert), of_expert, w.cols, w.stride},
                made.mat, segment);
    for (std::size_t i = 0; i < own.size(); ++i)
      std::memcpy(y.row(own[i]), made.mat.row(Index(i)), std::size_t(y.cols) * sizeof(To));
  }
}

void count_choices(Lane lane, Vec<const std::int32_t> slots, Vec<std::int32_t> counts) {
  SEEKSIM_CHECK_EQ(counts.n % 2, 0);
  if (const DeviceTable* device = device_of(lane)) return device->common.count_choices(lane, slots, counts);
  const Index experts = counts.n / 2;
  check_slots(slots, experts);
  std::fill(counts.data, counts.data + counts.n, 0);
  for (Index s = 0; s < slots.n; ++s) {
    const std::int32_t slot = slots[s], expert = slot < 0 ? -1 - slot : slot;
    ++counts[expert];
    if (slot < 0) ++counts[experts + expert];
  }
}

template <class T>
void expert_weight_grad(Lane lane, Vec<const std::int32_t> slots, int choices, Index tokens, InMat<T> a, InMat<T> b,
                        RowOf b_of, Mat<float> dw) {
  const Index of_sample = tokens * choices, M = a.cols, N = b.cols;
  SEEKSIM_CHECK(of_sample > 0 && slots.n > 0 && slots.n % of_sample == 0, "%lld slots, %lld of a sample",
                static_cast<long long>(slots.n), static_cast<long long>(of_sample));
  SEEKSIM_CHECK_EQ(a.rows, slots.n);
  SEEKSIM_CHECK_EQ(b.rows, b_of == RowOf::token ? slots.n / choices : slots.n);
  SEEKSIM_CHECK_EQ(dw.cols, N);
  SEEKSIM_CHECK_EQ(dw.rows % M, 0);
  if (const DeviceTable* device = device_of(lane))
    return device->experts<T>().weight_grad(lane, slots, choices, tokens, a, b, b_of, dw);
  check_slots(slots, dw.rows / M);
  for (Index e = 0; e < dw.rows / M; ++e) {
    MatrixTree tree(std::size_t(M * N));
    for (Index first = 0; first < slots.n; first += of_sample) {
      const std::vector<Index> own = slots_of(slots, first, first + of_sample, e);
      std::vector<float>& leaf = tree.leaf();  // zeros
      if (!own.empty())
        gemm<T, float>(by_contract(lane), Trans::yes, Trans::no, gather<T>(own, choices, a, RowOf::slot).mat,
                       gather<T>(own, choices, b, b_of).mat, {leaf.data(), M, N, N});
      tree.push();
    }
    const std::vector<float>& sum = tree.finish();
    for (Index m = 0; m < M; ++m) std::memcpy(dw.row(e * M + m), sum.data() + m * N, std::size_t(N) * sizeof(float));
  }
}

template <class T>
void expert_combine(Lane lane, Vec<const std::int32_t> slots, Vec<const float> gates, InMat<T> y, OutMat<T> out) {
  SEEKSIM_CHECK(out.rows > 0 && slots.n % out.rows == 0, "%lld slots of %lld rows", static_cast<long long>(slots.n),
                static_cast<long long>(out.rows));
  SEEKSIM_CHECK_EQ(y.rows, slots.n);
  SEEKSIM_CHECK_EQ(gates.n, slots.n);
  SEEKSIM_CHECK_EQ(y.cols, out.cols);
  if (const DeviceTable* device = device_of(lane))
    return device->experts<T>().combine(lane, slots.data, gates.data, y, out);
  const Index k = slots.n / out.rows;
  for (Index r = 0; r < out.rows; ++r)
    elements_in<T>().expert_combine(&slots[r * k], &gates[r * k], k, {y.row(r * k), k, y.cols, y.stride}, out.row(r));
}

template <class T>
void expert_combine_backward(Lane lane, Vec<const std::int32_t> slots, Vec<const float> gates, InMat<T> dout,
                             InMat<T> act, OutMat<T> dact, Vec<float> dgates, OutMat<T> dy, Index segment) {
  SEEKSIM_CHECK(dout.rows > 0 && slots.n % dout.rows == 0, "%lld slots of %lld rows", static_cast<long long>(slots.n),
                static_cast<long long>(dout.rows));
  SEEKSIM_CHECK(act.rows == slots.n && dact.rows == slots.n && dy.rows == slots.n && dgates.n == slots.n, "%lld slots",
                static_cast<long long>(slots.n));
  SEEKSIM_CHECK_EQ(dact.cols, act.cols);
  SEEKSIM_CHECK_EQ(dy.cols, dout.cols);
  const Index each = segment > 0 ? segment : std::max<Index>(act.cols, 1);
  SEEKSIM_CHECK(act.cols <= kSlabs * each, "%lld columns in segments of %lld", static_cast<long long>(act.cols),
                static_cast<long long>(each));
  if (const DeviceTable* device = device_of(lane))
    return device->experts<T>().combine_backward(lane, slots.data, gates.data, dout, act, dact, dgates, dy, each);
  const Index k = slots.n / dout.rows;
  for (Index s = 0; s < slots.n; ++s) {
    dgates[s] = 0;
    if (slots[s] < 0) {
      std::fill_n(dact.row(s), dact.cols, T{});
      std::fill_n(dy.row(s), dy.cols, T{});
      continue;
    }
    float nodes[kSlabs];
    Index n = 0;
    for (Index begin = 0; begin < act.cols; begin += each)
      nodes[n++] = elements_in<T>().row_dot(dact.row(s) + begin, act.row(s) + begin, std::min(each, act.cols - begin));
    dgates[s] = tree_fold({nodes, n});
    elements_in<T>().scale_row(gates[s], dact.row(s), dact.row(s), dact.cols);
    elements_in<T>().scale_row(gates[s], dout.row(s / k), dy.row(s), dy.cols);
  }
}

void expert_places(Lane lane, Vec<const std::int32_t> slots, int choices, Index tokens, int own, Index places,
                   Vec<std::int32_t> sources, Vec<std::int32_t> numbers) {
  const Index of_sample = tokens * choices;
  SEEKSIM_CHECK(of_sample > 0 && slots.n > 0 && slots.n % of_sample == 0 && own > 0 && places > 0,
                "%lld slots, %lld of a sample, %d experts a rank", static_cast<long long>(slots.n),
                static_cast<long long>(of_sample), own);
  const Index samples = slots.n / of_sample, ranks = sources.n / (samples * places);
  SEEKSIM_CHECK(sources.n == ranks * samples * places && numbers.n == sources.n, "%lld places of %lld samples",
                static_cast<long long>(sources.n), static_cast<long long>(samples));
  if (const DeviceTable* device = device_of(lane))
    return device->common.expert_places(lane, slots, of_sample, own, places, sources, numbers);
  check_slots(slots, ranks * own);
  elements().expert_places(slots.data, of_sample, samples, ranks, own, places, sources.data, numbers.data);
  const auto count = [](Vec<const std::int32_t> of) { return std::count_if(of.data, of.data + of.n, is_taken); };
  SEEKSIM_CHECK(count(slots) == count(sources), "%lld slots are taken, and %lld have a place",
                static_cast<long long>(count(slots)), static_cast<long long>(count(sources)));
}

void expert_accept(Lane lane, int own, Vec<std::int32_t> numbers) {
  if (const DeviceTable* device = device_of(lane)) return device->common.expert_accept(lane, own, numbers);
  for (Index i = 0; i < numbers.n; ++i)
    if (numbers[i] >= own || numbers[i] < 0) numbers[i] = -1;
}

namespace {
void check_sources(Vec<const std::int32_t> sources, Index slots) {
  for (Index i = 0; i < sources.n; ++i)
    SEEKSIM_CHECK(sources[i] < slots, "place %lld has slot %d of %lld", static_cast<long long>(i), sources[i],
                  static_cast<long long>(slots));
}
}  // namespace

template <class T>
void expert_pack(Lane lane, Vec<const std::int32_t> sources, int choices, InMat<T> x, RowOf of, OutMat<T> out) {
  SEEKSIM_CHECK_EQ(sources.n, out.rows);
  SEEKSIM_CHECK_EQ(x.cols, out.cols);
  if (const DeviceTable* device = device_of(lane))
    return device->experts<T>().pack(lane, sources.data, choices, x, of, out);
  check_sources(sources, of == RowOf::token ? x.rows * choices : x.rows);
  for (Index i = 0; i < out.rows; ++i) {
    if (sources[i] < 0)
      std::fill_n(out.row(i), out.cols, T{});
    else
      std::memcpy(out.row(i), x.row(row_of(sources[i], choices, of)), std::size_t(out.cols) * sizeof(T));
  }
}

template <class T>
void expert_unpack(Lane lane, Vec<const std::int32_t> sources, InMat<T> rows, OutMat<T> out) {
  SEEKSIM_CHECK_EQ(sources.n, rows.rows);
  SEEKSIM_CHECK_EQ(rows.cols, out.cols);
  if (const DeviceTable* device = device_of(lane)) return device->experts<T>().unpack(lane, sources.data, rows, out);
  check_sources(sources, out.rows);
  for (Index s = 0; s < out.rows; ++s) std::fill_n(out.row(s), out.cols, T{});
  for (Index i = 0; i < rows.rows; ++i)
    if (sources[i] >= 0) std::memcpy(out.row(sources[i]), rows.row(i), std::size_t(out.cols) * sizeof(T));
}

template <class T>
void expert_collect(Lane lane, Vec<const std::int32_t> slots, InMat<T> dx, InMat<T> router, OutMat<T> out) {
  SEEKSIM_CHECK(out.rows > 0 && slots.n % out.rows == 0, "%lld slots of %lld rows", static_cast<long long>(slots.n),
                static_cast<long long>(out.rows));
  SEEKSIM_CHECK_EQ(dx.rows, slots.n);
  SEEKSIM_CHECK_EQ(router.rows, out.rows);
  SEEKSIM_CHECK(dx.cols == out.cols && router.cols == out.cols, "%lld columns", static_cast<long long>(out.cols));
  if (const DeviceTable* device = device_of(lane))
    return device->experts<T>().collect(lane, slots.data, dx, router, out);
  const Index k = slots.n / out.rows;
  for (Index r = 0; r < out.rows; ++r)
    elements_in<T>().expert_collect(&slots[r * k], k, {dx.row(r * k), k, dx.cols, dx.stride}, router.row(r),
                                    out.row(r));
}

#define SEEKSIM_INSTANTIATE(T)                                                                                      \
  template void route_backward<T>(Lane, const Router&, Mat<const float>, Vec<const std::int32_t>, Vec<const float>, \
                                  Mat<const float>, Vec<const float>, Vec<const float>, float, OutMat<T>);          \
  template void expert_product<T, T>(Lane, Vec<const std::int32_t>, int, InMat<T>, RowOf, InMat<T>, Trans, Index,   \
                                     OutMat<T>);                                                                    \
  template void expert_weight_grad<T>(Lane, Vec<const std::int32_t>, int, Index, InMat<T>, InMat<T>, RowOf,         \
                                      Mat<float>);                                                                  \
  template void expert_combine<T>(Lane, Vec<const std::int32_t>, Vec<const float>, InMat<T>, OutMat<T>);            \
  template void expert_combine_backward<T>(Lane, Vec<const std::int32_t>, Vec<const float>, InMat<T>, InMat<T>,     \
                                           OutMat<T>, Vec<float>, OutMat<T>, Index);                                \
  template void expert_pack<T>(Lane, Vec<const std::int32_t>, int, InMat<T>, RowOf, OutMat<T>);                     \
  template void expert_unpack<T>(Lane, Vec<const std::int32_t>, InMat<T>, OutMat<T>);                               \
  template void expert_collect<T>(Lane, Vec<const std::int32_t>, InMat<T>, InMat<T>, OutMat<T>);
SEEKSIM_INSTANTIATE(float)
SEEKSIM_INSTANTIATE(bf16)
SEEKSIM_INSTANTIATE(fp16)
#undef SEEKSIM_INSTANTIATE
template void expert_product<bf16, float>(Lane, Vec<const std::int32_t>, int, InMat<bf16>, RowOf, InMat<bf16>, Trans,
                                          Index, OutMat<float>);
template void expert_product<fp16, float>(Lane, Vec<const std::int32_t>, int, InMat<fp16>, RowOf, InMat<fp16>, Trans,
                                          Index, OutMat<float>);

}  // namespace seeksim::kernels
