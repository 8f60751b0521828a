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
  std::vector<TokenRows> rows;
  const auto add = [&](Index begin, Index end) {
    if (!rows.empty() && begin <= rows.back().end)
      rows.back().end = std::max(rows.back().end, end);
    else if (begin < end)
      rows.push_back({begin, end});
  };
  const Index learned = batch.learned > 0 ? std::min(batch.learned, tokens) : tokens;
  std::size_t document = 0;
  const std::size_t documents = batch.documents != nullptr ? batch.documents->size() : 0;
  for (Index sample = 0; sample < batch.samples; ++sample) {
    const Index ignored = sample * tokens + learned, end = (sample + 1) * tokens;
    for (; document < documents; ++document) {
      const PackedDocument& one = (*batch.documents)[document];
      const Index last = one.first + one.tokens - 1;
      if (last >= ignored) break;
      if (one.ends) add(last, last + 1);
    }
    add(ignored, end);
    while (document < documents && (*batch.documents)[document].first < end) ++document;
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
