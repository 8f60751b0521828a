#include "runtime/model/packing.h"

#include <algorithm>

namespace seeksim::runtime {

std::vector<PackedDocument> documents_of(const DataSource& data, std::int32_t separator, std::int64_t first,
                                         Index count) {
  std::vector<PackedDocument> documents;
  std::vector<std::int32_t> tokens(std::size_t(data.context) + 1);
  for (Index sample = 0; sample < count; ++sample) {
    data.sample(first + sample, tokens.data());
    Index begin = 0;
    for (Index i = 0; i < data.context; ++i) {
      const bool ends = tokens[std::size_t(i)] == separator;
      if (!ends && i + 1 < data.context) continue;
      documents.push_back({sample * data.context + begin, i + 1 - begin, ends});
      begin = i + 1;
    }
  }
  return documents;
}

Index tokens_with_loss(const DataSource& data, std::int32_t separator, Index learned, std::int64_t first, Index count) {
  if (separator < 0) return learned * count;
  Index all = 0;
  std::vector<std::int32_t> tokens(std::size_t(data.context) + 1);
  for (Index sample = 0; sample < count; ++sample) {
    data.sample(first + sample, tokens.data());
    all += learned - std::count(tokens.begin(), tokens.begin() + learned, separator);
  }
  return all;
}

std::vector<TokenRows> rows_without_loss(const Batch& batch, Index tokens) {
  std::vector<bool> lost(std::size_t(batch.samples * tokens));
  for (Index row = 0; batch.learned > 0 && row < batch.samples * tokens; ++row)
    lost[std::size_t(row)] = row % tokens >= batch.learned;
  if (batch.documents != nullptr) {
    for (const PackedDocument& document : *batch.documents)
      if (document.ends) lost[std::size_t(document.first + document.tokens - 1)] = true;
  }
  std::vector<TokenRows> rows;
  for (Index row = 0; row < Index(lost.size()); ++row) {
    if (!lost[std::size_t(row)]) continue;
    if (rows.empty() || rows.back().end != row) rows.push_back({row, row});
    rows.back().end = row + 1;
  }
  return rows;
}

std::vector<AttentionPart> attention_parts(const std::vector<PackedDocument>* documents,
                                           const kernels::AttentionShape& all) {
  if (documents == nullptr || documents->empty()) return {{all, 0, 0}};
  std::vector<AttentionPart> parts;
  for (const PackedDocument& document : *documents) {
    AttentionPart part{all, document.first, document.first * all.heads};
    part.shape.samples = 1;
    part.shape.tokens = document.tokens;
    parts.push_back(part);
  }
  return parts;
}

}  // namespace seeksim::runtime
