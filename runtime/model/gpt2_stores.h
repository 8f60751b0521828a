// What a rank has of a model's sizes, where several go through each layer together; and what it keeps of its
// activations.
#pragma once

#include <memory>

#include "runtime/comm/context_group.h"
#include "runtime/comm/tensor_parallel.h"
#include "runtime/layout/gpt2_parameters.h"
#include "runtime/numbers/fp8_products.h"

namespace seeksim::runtime {

// What a tensor way has of a model's sizes, or the rank of a context group of its tokens: all of them, where there is
// one. Products are split by columns or rows of their weights; between them, in the residual stream, a way has the rows
// of all tokens or, with sequence parallelism, of its own. A rank of a context group has rows of its own tokens alone,
// but while it attends: then those of all tokens, of its own heads.
struct Gpt2Way {
  // segments: a sample's gradient of a weight is summed by segments.
  Gpt2Way(const ModelShape& shape, bool segments, const ModelPart& part, const TensorAxis* tensor, ContextGroup* group);
  Index V, H, Q, F, U;         // as in ModelShape; H of attention
  MlpShape dense, shared;      // likewise
  Index A;                     // width of what comes out of the heads, in rows of tokens
  Index first_head;            // of the model
  Index first_vocabulary;      // of the model
  Index tokens, first_token;   // of each sample, in the residual stream
  Index rows;                  // of each sample, inside products
  Index attended_q, attended;  // widths of what goes into attention and comes out, in rows of all tokens
  Index block;                 // rows of one of the blocks' samples
  Index segment;               // of those, that are one chain of a weight's gradient
  ContextGroup* context;       // null: all tokens are here
  // In a context group: whether it attends to all tokens, by heads of its own; else with its own queries, of all heads.
  bool by_heads() const { return context != nullptr && context->ring() == nullptr; }
  Index attending_rows(Index all) const { return context != nullptr && !by_heads() ? rows : all; }  // of each sample
};

// What a router leaves for backward, of layers with experts.
struct RouteStore {
  BufferPtr probs;           // (slots, R, E)
  BufferPtr chosen;          // (slots, R k)  of integers
  BufferPtr gates, spreads;  // (slots, R k), (slots, R)
  BufferPtr shares;          // (slots, samples, E)
};

// And where the experts are divided among ranks; N rows at most are packed here, and arrive here (comm/expert_group.h).
struct ArrivalStore {
  BufferPtr sources;  // (slots, N)  of integers: the slot of each packed row
  BufferPtr experts;  // (slots, N)  of integers: whose rows arrived
  BufferPtr rows;     // (slots, N, C)
};

// Of one mlp that every token passes, in a model with experts: rows R each.
struct MlpStore {
  BufferPtr fc, gelu;  // (slots, R, U), (slots, R, F)
};

// Activations of layers, R = samples_max * T rows each (of a context group: its own tokens'), Rs in the residual
// stream; A, H, Q, F, U as a way has them; k is 1 without experts. In a context group qkv, probs and stats are of all
// tokens, Rt = samples_max * T, and of its own heads; with ring attention, of its own tokens and all heads. Where
// experts are divided among ranks, N stands for R k. Layers with experts and layers without have slots of their own of
// what only they have.
struct LayerStore {
  BufferPtr mid;                         // (slots, Rs, C)  residual stream between attention and mlp
  BufferPtr ln1, ln2;                    // (slots, Rs, C)
  BufferPtr att;                         // (slots, R, A)
  BufferPtr heads;                       // (slots, Rt, A / ranks)  the same by heads, of fused attention in a group
  BufferPtr mean1, rstd1, mean2, rstd2;  // (slots, Rs)   no means in a Llama
  BufferPtr qkv;                         // (slots, R, Q)
  BufferPtr probs;                       // (slots, samples * H * T, T)  fused attention: none
  BufferPtr stats;                       // (slots, samples * H * T, 2)  of fused attention only
  BufferPtr fc;                          // (slots, R k, U)  into the mlp's activation
  BufferPtr gelu;                        // (slots, R k, F)  out of it
  RouteStore routes;
  ArrivalStore arrivals;
  MlpStore shared;  // beside experts
  MlpStore dense;   // in layers without experts, where others have some
};

// Working memory of a layer with experts.
struct ExpertWork {
  BufferPtr logits;       // (R, E)    of the router, in fp32
  BufferPtr rows;         // (R k, C)  out of the experts; backward: the gradient of that, then of what goes into them
  BufferPtr dgates;       // (R k)
  BufferPtr dlogits;      // (R, E)
  BufferPtr shared;       // (R, C)  out of the shared expert; backward: the gradient of what goes into it
  BufferPtr losses;       // (R)      of a router whose layer is computed again, where those of the first time travel
  ArrivalStore arrivals;  // a bug's: of the layers of all micro-batches in flight
};

// More of it where the experts are divided among ranks; ExpertWork's rows are (N, C) there.
struct GroupWork {
  BufferPtr slots;           // (R k, C)  out of the experts, back here; backward: the gradient of what goes into them
  BufferPtr packed;          // (N, C)    rows to send, or that came back
  BufferPtr packed_experts;  // (N)       of integers
  BufferPtr packed_values;   // (N)       gates to send; backward: their gradients that came back
  BufferPtr gates, dgates;   // (N)       of rows that arrived
};

// Buffers that the micro-batches in flight share, since no pass needs them after its end.
struct Gpt2Workspace {
  BufferPtr residual;  // (slots, Rs, C)  residual stream inside segments that are computed again
  LayerStore layers;   // of those segments
  BufferPtr branch;    // (Rs, C)  what a branch adds to the residual stream; backward: the gradient in a branch, also
                       //          (R, A)
  BufferPtr dmid;      // (Rs, C)  gradient of the residual stream
  BufferPtr gathered;  // (R, C)   rows of all tokens, where ways have their own
  struct OfContext {   // rows of all tokens, of own heads
    BufferPtr heads;   // (Rt, A / ranks)  out of the heads; backward: its gradient
    BufferPtr dqkv;    // (Rt, Q / ranks)
    BufferPtr losses;  // (Rt)  of all tokens
  } context;
  BufferPtr dqkv;        // (R, Q)
  BufferPtr dgelu, dfc;  // (R k, F), (R k, U)  of any mlp: the widest
  ExpertWork experts;
  GroupWork group;
  BufferPtr scratch;         // (2T, T)  fused attention: none
  BufferPtr angles;          // (T, D)   of rotary positions
  BufferPtr angles_at_home;  // the same, in memory of the host
  Fp8Work fp8;               // of products whose operands are cast to 8 bits
  BufferPtr unused;          // (C)      the gradient of a frozen bias whose norm's weight is trained
};

// What a later backward_weight needs of backward_input, by layer of the piece.
struct Gpt2Deferred {
  BufferPtr dln1, dln2, dmid;          // (layers, Rs, C)
  BufferPtr dqkv;                      // (layers, R, Q)
  BufferPtr dfc;                       // (layers, R k, U)
  BufferPtr dslots, dlogits;           // (layers, R k, C), (layers, R, E)  of experts
  BufferPtr dropped_att, dropped_mlp;  // (layers, Rs, C)  where a branch drops values
  BufferPtr dlnf;                      // (Rs, C)
};

// Where layer l's activations are, and the residual stream into it.
struct LayerSlots {
  bool shared = false;  // in the workspace; else they are this micro-batch's own
  int activations = 0;
  int inner = 0;  // among layers that have experts, or among those that have none: of what only they have
  bool residual_shared = false;
  int residual = 0;     // in x_ or the workspace, or
  int checkpoint = -1;  // in checkpoints_
};

// How many layers have a place of their own.
struct StoreSlots {
  int layers = 0;
  int routed = 0, dense = 0;  // of what only layers with experts have, or those without
};

// What the routers of a layer have made of the rows of tokens.
struct RouteViews {
  MatView<float> probs;
  VecView<std::int32_t> slots;
  VecView<float> gates;
  MatView<float> shares;
  VecView<float> spreads;
};

// Slots of the tokens that are here in the residual stream: of `count` samples, `size` each, `step` apart.
struct OwnSlots {
  Index count = 1, first = 0, size = 0, step = 0;
  bool apart = false;  // their rows lie one sample after the other, without those of other tokens
  Index slot(Index sample) const { return first + sample * step; }
  Index row(Index sample) const { return apart ? sample * size : slot(sample); }
};

}  // namespace seeksim::runtime
