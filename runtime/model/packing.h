// Packed samples: where the documents of a sample begin and end, and which of its tokens have a loss (docs/data.md).
#pragma once

#include <vector>

#include "kernels/attention.h"
#include "kernels/view.h"
#include "runtime/model/model.h"
#include "runtime/samples/data.h"

namespace seeksim::runtime {

// Documents of samples [first, first + count), each up to and with a separator; in order.
std::vector<PackedDocument> documents_of(const DataSource& data, std::int32_t separator, std::int64_t first,
                                         Index count);

// Tokens of samples [first, first + count) that have a loss: the first `learned` of each, but for those that end a
// document. separator: -1: no token does.
Index tokens_with_loss(const DataSource& data, std::int32_t separator, Index learned, std::int64_t first, Index count);

// Rows [begin, end) of a micro-batch, one a token.
struct TokenRows {
  Index begin = 0;
  Index end = 0;
};
// Those of a batch that have no loss, in order.
std::vector<TokenRows> rows_without_loss(const Batch& batch, Index tokens);

// A document's part of what attention works on, or all of it where each sample is a document.
struct AttentionPart {
  kernels::AttentionShape shape;
  Index row = 0;   // the first one of queries, keys and values
  Index head = 0;  // the first row of probabilities, or of what fused attention keeps of them

  // What belongs to the part, of all that the micro-batch has.
  template <class T>
  MatView<T> rows(MatView<T> all) const {
    return all.row_range(row, shape.samples * shape.tokens);
  }
  template <class T>
  MatView<T> of_heads(MatView<T> all, Index cols) const {
    MatView<T> part = all.row_range(head, shape.samples * shape.heads * shape.tokens);
    part.cols = cols;
    return part;
  }
};
// documents: null or empty: each sample is one.
std::vector<AttentionPart> attention_parts(const std::vector<PackedDocument>* documents,
                                           const kernels::AttentionShape& all);

}  // namespace seeksim::runtime
