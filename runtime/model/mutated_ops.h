// Mutants that do another operation than the model asks for, on fp32 values in memory of the host (rules/mutants.h).
// Elsewhere, and in 16 bits, they do nothing.
#pragma once

#include "kernels/attention.h"
#include "kernels/view.h"
#include "runtime/rules/mutants.h"

namespace seeksim::runtime {

// Whether attention looks at other keys than those up to its own; then mutated_attention() is what goes forward.
bool replaces_mask(Mutant mutant);
// As kernels::attention_forward, without dropout. probs (B*H*T, T), out (B*T, H*D).
void mutated_attention(Mutant mutant, kernels::AttentionShape shape, kernels::Mat<const float> qkv,
                       kernels::Mat<float> probs, kernels::Mat<float> out);

// Whether queries are scaled, or stand at other heads, before attention. changes_queries() also tells of what comes
// out.
bool changes_queries(Mutant mutant);
// In place, on the query columns of qkv (B*T, Q) and its gradient; back: of the gradient.
void mutate_queries(Mutant mutant, kernels::AttentionShape shape, kernels::Index width, bool back,
                    kernels::Mat<float> qkv);
// In place, on what comes out of the heads (B*T, H*D) and its gradient.
void mutate_heads(Mutant mutant, kernels::AttentionShape shape, bool back, kernels::Mat<float> heads);

// y = x * Phi(x), and dx = dy * (Phi(x) + x * phi(x)).
void gelu_by_erf(kernels::Mat<const float> x, kernels::Mat<float> y);
void gelu_by_erf_backward(kernels::Mat<const float> dy, kernels::Mat<const float> x, kernels::Mat<float> dx);

}  // namespace seeksim::runtime
