// A layer of experts: a router gives each token to the k experts whose logits are largest, and the token's result is
// the sum of what they make of it, weighed by its gates. Choice j of token r is slot r * k + j. All that an expert does
// lies in rows of slots, so shapes do not depend on the routing. What is decided for a token depends on its own sample
// alone, or on a group of samples that are always together, never on a rank (docs/numerics.md#experts).
#pragma once

#include "kernels/gemm.h"
#include "kernels/view.h"

namespace seeksim::kernels {

// Shapes: R rows (tokens of several samples), E experts, k choices of a token, C width, F width inside an expert.
struct Router {
  Index tokens = 0;        // that are counted together: of a sample, or of a group of them
  int experts = 0;         // E
  int choices = 0;         // k
  Index capacity = 0;      // of those that an expert takes; 0: any number
  bool normalized = true;  // the gates of a token are divided by their sum; else they are scores
  float balance = 0;       // factor of the balancing loss: its coefficient times E
  float z = 0;             // coefficient of the z loss
  bool sigmoid = false;    // a score is 1 / (1 + exp(-logit)); else the scores of a token are the softmax
  float scale = 1;         // of the gates, divided or not; above 0
};

// What a router hands to its layer, and keeps for its backward pass.
struct Routes {
  Mat<float> probs;         // (R, E)  softmax of the logits; of sigmoid gates the logits
  Vec<std::int32_t> slots;  // (R k)   the expert e of each slot; -1 - e where e's capacity was used up
  Vec<float> gates;         // (R k)
  Mat<float> shares;        // (R / tokens, E)  of slots counted together, those that chose e, taken or not
  Vec<float> spreads;       // (R)     log of the sum of exp(logit)
  Vec<float> losses;        // (R)     balancing loss and z loss of each token
};

// Choices: the k largest logits in turn; of equal ones the lowest expert. Maximum F5; sums over experts and choices F1,
// in ascending order: exp(logit - max), gates, shares[e] * probs[e]. An expert takes slots counted together up to its
// capacity: all first choices in the order of tokens, then all second ones, and so on.
// Gates: scores, or these divided by their sum (of sigmoid gates by it + 1e-20); then times scale.
// losses[r] = balance * sum of shares * probs + z * spread^2. Of sigmoid gates probs are scores there, and the sum over
// experts is divided by that of all scores + 1e-20.
void route(Lane lane, const Router& router, Mat<const float> logits, const Routes& out);

// counts (2 E): of each expert the slots that chose it, then of each those that were not taken.
void count_choices(Lane lane, Vec<const std::int32_t> slots, Vec<std::int32_t> counts);

// dlogits (R, E) from the gradient of the gates (R k), which is 0 for slots that were not taken, and from both losses,
// whose own factor is `scale`. Sums over choices and experts as above. dlogits are stored as T.
template <class T = float>
void route_backward(Lane lane, const Router& router, Mat<const float> probs, Vec<const std::int32_t> slots,
                    Vec<const float> gates, Mat<const float> shares, Vec<const float> spreads, Vec<const float> dgates,
                    float scale, OutMat<T> dlogits);

// losses[r] += more[0][r], then more[1][r], and so on.
void add_token_losses(Lane lane, Mat<const float> more, Vec<float> losses);

// Which row of a matrix belongs to slot s: s, or the token's, s / k.
enum class RowOf : std::uint8_t { slot, token };

// y (R k, N): row s = x's row of s times op(W_e), e being the expert of slot s; +0 in slots that were not taken. w:
// experts one below the other, (E N, K) with Trans::yes, (E K, N) with Trans::no. F1 over K, or F2 in segments as gemm.
// To: T, or float for a node of a product that ways have split along K (slabs.h).
template <class T = float, class To = T>
void expert_product(Lane lane, Vec<const std::int32_t> slots, int choices, InMat<T> x, RowOf of, InMat<T> w, Trans tw,
                    Index segment, OutMat<To> y);

// dw (E M, N): of expert e the sum over its slots of a's row (M), transposed, times b's row (N). a has rows of slots.
// F1 over the tokens of a sample in ascending order, then F3 over samples; a sample without a token of e is a leaf of
// +0.
template <class T = float>
void expert_weight_grad(Lane lane, Vec<const std::int32_t> slots, int choices, Index tokens, InMat<T> a, InMat<T> b,
                        RowOf b_of, Mat<float> dw);

// out (R, C): F1 over the slots of a token that were taken, gate times row of y (R k, C).
template <class T = float>
void expert_combine(Lane lane, Vec<const std::int32_t> slots, Vec<const float> gates, InMat<T> y, OutMat<T> out);

// Backward of expert_combine, where y = act W. dact (R k, F) arrives as the gradient of out times W^T. dgates[s] = the
// dot product of row s of dact and act (F4; segment > 0: F4 inside each segment of F, at most 8 of them, then F3); then
// dact's row and dy's row (R k, C) = gate times dact and the token's row of dout. All are +0 in slots that were not
// taken.
template <class T = float>
void expert_combine_backward(Lane lane, Vec<const std::int32_t> slots, Vec<const float> gates, InMat<T> dout,
                             InMat<T> act, OutMat<T> dact, Vec<float> dgates, OutMat<T> dy, Index segment = 0);

// Where rows of slots go when the experts are divided among ranks of `own` each, expert e to rank e / own. A sample's
// rows for a rank take the first of `places` places, in the order of slots. sources (ranks, samples, places): the slot
// of each place, and experts (likewise) its expert as that rank counts its own; -1: nothing is there. A sample never
// has more taken slots at a rank than places.
void expert_places(Lane lane, Vec<const std::int32_t> slots, int choices, Index tokens, int own, Index places,
                   Vec<std::int32_t> sources, Vec<std::int32_t> experts);

// Experts of places that another rank has sent, of which there are `own`. After an abort they may be anything: what is
// no expert becomes -1.
void expert_accept(Lane lane, int own, Vec<std::int32_t> experts);

// out: of each place x's row of the slot that is its source; +0 of an empty one.
template <class T = float>
void expert_pack(Lane lane, Vec<const std::int32_t> sources, int choices, InMat<T> x, RowOf of, OutMat<T> out);

// The way back. out: of each slot the row of its place; +0 of one that has none.
template <class T = float>
void expert_unpack(Lane lane, Vec<const std::int32_t> sources, InMat<T> rows, OutMat<T> out);

// out (R, C): the rows of a token's slots that were taken, added in turn from +0, then `router`'s row.
template <class T = float>
void expert_collect(Lane lane, Vec<const std::int32_t> slots, InMat<T> dx, InMat<T> router, OutMat<T> out);

}  // namespace seeksim::kernels
