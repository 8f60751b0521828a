// Which rows of a micro-batch have no loss: what a row by row count gives, for random documents and curricula.
#include "runtime/model/packing.h"

#include <gtest/gtest.h>

#include <rapidcheck/gtest.h>

namespace seeksim::test {
namespace {

using namespace runtime;

// Documents that fill each sample, as packing cuts them: only a sample's last one may go on in the next sample.
std::vector<PackedDocument> random_documents(Index samples, Index tokens) {
  std::vector<PackedDocument> documents;
  for (Index sample = 0; sample < samples; ++sample) {
    for (Index begin = 0; begin < tokens;) {
      const Index length = *rc::gen::inRange<Index>(1, tokens - begin + 1);
      const bool last = begin + length == tokens;
      documents.push_back({sample * tokens + begin, length, !last || *rc::gen::arbitrary<bool>()});
      begin += length;
    }
  }
  return documents;
}

RC_GTEST_PROP(Packing, RowsWithoutLossAreThoseOfEachRow, ()) {
  const Index tokens = *rc::gen::inRange<Index>(1, 9);
  Batch batch;
  batch.samples = *rc::gen::inRange<Index>(0, 5);
  batch.learned = *rc::gen::inRange<Index>(0, tokens + 1);
  const std::vector<PackedDocument> documents = random_documents(batch.samples, tokens);
  if (*rc::gen::arbitrary<bool>()) batch.documents = &documents;

  std::vector<bool> lost(std::size_t(batch.samples * tokens));
  for (Index row = 0; row < batch.samples * tokens; ++row)
    lost[std::size_t(row)] = batch.learned > 0 && row % tokens >= batch.learned;
  for (const PackedDocument& one : documents)
    if (batch.documents != nullptr && one.ends) lost[std::size_t(one.first + one.tokens - 1)] = true;

  std::vector<bool> found(lost.size());
  Index end = -1;
  for (const TokenRows& rows : rows_without_loss(batch, tokens)) {
    RC_ASSERT(rows.begin > end);  // in order, and no two that touch
    RC_ASSERT(rows.begin < rows.end);
    end = rows.end;
    for (Index row = rows.begin; row < rows.end; ++row) found.at(std::size_t(row)) = true;
  }
  RC_ASSERT(found == lost);
}

}  // namespace
}  // namespace seeksim::test
