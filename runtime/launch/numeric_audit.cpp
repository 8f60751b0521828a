#include "runtime/launch/numeric_audit.h"

#include <algorithm>
#include <bit>
#include <cstdio>
#include <vector>

#include "kernels/gemm.h"
#include "kernels/host_access.h"
#include "kernels/tree.h"

namespace seeksim::runtime {

using kernels::GemmCall;
using kernels::Lane;
using kernels::Mat;
using kernels::OnHost;
using kernels::Trans;
using kernels::Vec;

namespace {

template <class T>
std::vector<T> rows_on_host(Lane lane, Mat<const T> from) {
  const Index extent = from.rows == 0 ? 0 : (from.rows - 1) * from.stride + from.cols;
  const OnHost<T> all(lane, {from.data, extent});
  const T* const first = all.get().data;
  std::vector<T> rows(std::size_t(from.rows * from.cols));
  for (Index i = 0; i < from.rows; ++i)
    std::copy(first + i * from.stride, first + i * from.stride + from.cols, rows.begin() + i * from.cols);
  return rows;
}

template <class T>
Mat<T> packed(std::vector<T>& values, Index rows, Index cols) {
  return {values.data(), rows, cols, cols};
}

Trans trans(bool flipped) { return flipped ? Trans::yes : Trans::no; }

// The contract's, of the same operands, where they lie.
template <class T, class To>
void exact_gemm(Lane lane, const GemmCall<T, To>& call, Mat<To> c) {
  kernels::gemm<T, To>(lane, trans(call.ta), trans(call.tb), call.a, call.b, c, call.segment, call.bias);
}

}  // namespace

void NumericAudit::gemm(Lane lane, const kernels::AnyGemm& call) {
  std::visit([&](const auto& typed) { look_at(lane, typed); }, call);
}

template <class T, class To>
void NumericAudit::look_at(Lane given, const GemmCall<T, To>& call) {
  const Lane lane = kernels::by_contract(given);
  const Index rows = call.c.rows, columns = call.c.cols;
  vendor_.gemm(lane, call);
  std::vector<To> fast = rows_on_host<To>(lane, call.c);
  exact_gemm<T, To>(lane, call, call.c);

  // By the host, of what the operands are there.
  std::vector<T> a = rows_on_host<T>(lane, call.a), b = rows_on_host<T>(lane, call.b);
  std::vector<T> bias = rows_on_host<T>(lane, {call.bias.data, call.bias.n > 0 ? 1 : 0, call.bias.n, call.bias.n});
  GemmCall<T, float> here{
      call.ta, call.tb,      packed(a, call.a.rows, call.a.cols), packed(b, call.b.rows, call.b.cols),
      {},      call.segment, {bias.data(), call.bias.n}};
  std::vector<float> exact(std::size_t(rows * columns)), magnitudes(exact.size());
  exact_gemm<T, float>(Lane{}, here, packed(exact, rows, columns));
  kernels::gemm_magnitudes<T, float>(here, packed(magnitudes, rows, columns));
  const Index terms = call.k() + (call.bias.n > 0 ? 1 : 0);
  const bool tf32 = tf32_ && std::is_same_v<T, float>;
  take(report_.products, "product",
       kernels::compare<To>(packed(fast, rows, columns), packed(exact, rows, columns),
                            packed(magnitudes, rows, columns), terms, tf32),
       rows, columns, terms);
}

void NumericAudit::sum(Lane given, const kernels::SumCall& call, Vec<float> out) {
  const Lane lane = kernels::by_contract(given);
  std::vector<std::vector<float>> parts;
  std::vector<kernels::TreePart> here;
  for (Index i = 0; i < call.count; ++i) {
    parts.push_back(rows_on_host<float>(lane, {call.parts[i].data, 1, out.n, out.n}));
    here.push_back({call.parts[i].node, parts.back().data(), call.parts[i].group});
  }
  if (call.library == nullptr) vendor_.sum(lane, call, out);
  const float* const made = call.library == nullptr ? out.data : call.library;
  std::vector<float> fast = rows_on_host<float>(lane, {made, 1, out.n, out.n});
  for (float& value : fast) value *= call.library == nullptr ? 1.0f : call.factor;
  for (Index i = 0; i < call.count; ++i)  // the sum may take a part's place
    if (call.parts[i].data == out.data) kernels::write_values<float>(lane, here[std::size_t(i)].data, out);
  kernels::tree_sum(lane, call.parts, call.count, call.leaves, out, call.factor, call.owner);
  std::vector<float> exact = rows_on_host<float>(lane, {out.data, 1, out.n, out.n}), magnitudes(exact.size());
  kernels::sum_magnitudes({here.data(), call.count, call.leaves, call.factor, call.owner}, {magnitudes.data(), out.n});
  const Index terms = call.count + (call.factor == 1.0f ? 0 : 1);
  take(report_.sums, "sum",
       kernels::compare<float>(packed(fast, 1, out.n), packed(exact, 1, out.n), packed(magnitudes, 1, out.n), terms), 1,
       out.n, terms);
}

void NumericAudit::take(AuditTally& tally, const char* what, const kernels::Comparison& seen, Index rows, Index columns,
                        Index terms) {
  if (seen.elements == 0) return;
  if (tally.ops++ == 0 || seen.worst.ratio > tally.worst) {
    tally.worst = seen.worst.ratio;
    tally.worst_op = op_;
  }
  tally.elements += std::uint64_t(seen.elements);
  tally.over += std::uint64_t(seen.over);
  if (seen.over > 0 && !report_.first)
    report_.first = OverBound{op_, what, rows, columns, terms, seen.over, seen.first};
}

namespace {
void add(AuditTally& all, const AuditTally& one) {
  if (one.ops > 0 && (all.ops == 0 || one.worst > all.worst)) {
    all.worst = one.worst;
    all.worst_op = one.worst_op;
  }
  all.ops += one.ops;
  all.elements += one.elements;
  all.over += one.over;
}
}  // namespace

void add(AuditReport& all, const AuditReport& one) {
  add(all.products, one.products);
  add(all.sums, one.sums);
  if (one.first && (!all.first || one.first->op.step < all.first->op.step)) all.first = one.first;
}

std::string describe(const OverBound& over) {
  char text[640];
  std::snprintf(text, sizeof text,
                "%s in %s: element (%lld, %lld) of (%lld, %lld) over %lld terms is %.9g (%08x), the contract's is %.9g "
                "(%08x), the bound %.3g; beyond the rounding of its type it is off by %.3g times what the sum may be; "
                "%lld of its elements are over",
                over.what, describe(over.op).c_str(), static_cast<long long>(over.at.row),
                static_cast<long long>(over.at.column), static_cast<long long>(over.rows),
                static_cast<long long>(over.columns), static_cast<long long>(over.terms), double(over.at.fast),
                std::bit_cast<unsigned>(over.at.fast), double(over.at.exact), std::bit_cast<unsigned>(over.at.exact),
                over.at.bound, over.at.ratio, static_cast<long long>(over.over));
  return text;
}

}  // namespace seeksim::runtime
