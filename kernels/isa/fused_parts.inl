// Chunks of queries against chunks of keys (fused_attention.h), by the tiles of fused_attention.inl. Included after it.

template <class T>
void fused_part_forward_body(AttentionShape s, const FusedPlace& place, const Dropout& drop, Mat<const T> qkv,
                             Mat<const T> kv, Mat<float> state) {
  const Index d = s.head_dim, t = s.tokens, columns = s.group_columns(), wide = s.group * d;
  const auto work = FusedScratch<T>::make(s, false);
  const FusedSight sight{place, t};
  for (Index key_head = 0; key_head < s.samples * s.key_heads(); ++key_head) {
    const Index sample = key_head / s.key_heads(), k = key_head % s.key_heads();
    const Rows q = floats_of(qkv.row(sample * t) + k * columns, qkv.stride, t, wide, work.qkv, wide);
    const Rows keys = floats_of(kv.row(sample * t) + k * 2 * d, kv.stride, t, 2 * d, work.dqkv, 2 * d);
    transposed_rows(keys.data, keys.ld, t, d, work.keys);
    const Rows values = whole_vectors(keys.data + d, keys.ld, t, d, work.rows);
    for (Index g = 0; g < s.group; ++g) {
      const Index h = k * s.group + g;
      by_tiles(0, t, [&](Index i, int rows) SEEKSIM_LAMBDA {
        fused_tile_sums(s, sight, drop, work, drop.first_sample + static_cast<std::uint32_t>(sample), s.first_head + h,
                        i, rows, Rows{q.data + g * d, q.ld}, values);
        for (int r = 0; r < rows; ++r) {
          float* const to = state.row((sample * s.heads + h) * t + i + r);
          for_vectors(d, [&](Index c, auto lanes) SEEKSIM_LAMBDA {
            store_lanes(to + c, lanes, load_lanes(work.sum(0) + r * work.d + c, lanes));
          });
          to[d] = work.max_of(0)[r], to[d + 1] = work.total_of(0)[r];
        }
      });
    }
  }
}

static void fused_join_body(Mat<const float> newer, Mat<float> older) {
  const Index d = older.cols - 2;
  for (Index r = 0; r < older.rows; ++r) {
    const float* const n = newer.row(r);
    float* const o = older.row(r);
    const float m = n[d] > o[d] ? n[d] : o[d];
    const float a = math::exp<FloatOps>(FloatOps::sub(o[d], m));
    const float b = math::exp<FloatOps>(FloatOps::sub(n[d], m));
    o[d] = m;
    o[d + 1] = FloatOps::fma(n[d + 1], b, FloatOps::mul(o[d + 1], a));
    for_vectors(d, [&](Index c, auto lanes) SEEKSIM_LAMBDA {
      store_lanes(o + c, lanes,
                  SimdOps::fma(load_lanes(n + c, lanes), splat(b), SimdOps::mul(load_lanes(o + c, lanes), splat(a))));
    });
  }
}

template <class T>
void fused_root_body(AttentionShape s, Mat<const float> state, Mat<float> stats, Mat<T> out) {
  const Index d = s.head_dim, t = s.tokens;
  const auto work = FusedScratch<T>::make(s, false);
  for (Index head = 0; head < s.samples * s.heads; ++head) {
    const Index sample = head / s.heads, h = head % s.heads;
    const auto o = Target<T>::make(out.row(sample * t) + h * d, out.stride, work.out, d);
    for (Index i = 0; i < t; ++i) {
      const float* const from = state.row(head * t + i);
      const float inverse = FloatOps::div(1.0F, from[d + 1]);
      stats.row(head * t + i)[0] = from[d], stats.row(head * t + i)[1] = inverse;
      for_vectors(d, [&](Index c, auto lanes) SEEKSIM_LAMBDA {
        store_lanes(o.data + i * o.ld + c, lanes, SimdOps::mul(load_lanes(from + c, lanes), splat(inverse)));
      });
    }
    Target<T>::put(o, t, d);
  }
}

template <class T>
void fused_part_backward_body(AttentionShape s, const FusedPlace& place, const Dropout& drop, Mat<const T> dout,
                              Mat<const T> qkv, Mat<const T> kv, Mat<const T> out, Mat<const float> stats,
                              Mat<float> dq, Mat<float> dkv) {
  const Index d = s.head_dim, t = s.tokens, columns = s.group_columns(), wide = s.group * d;
  const auto work = FusedScratch<T>::make(s, true);
  const FusedSight sight{place, t};
  for (Index key_head = 0; key_head < s.samples * s.key_heads(); ++key_head) {
    const Index sample = key_head / s.key_heads(), k = key_head % s.key_heads();
    const Rows q = floats_of(qkv.row(sample * t) + k * columns, qkv.stride, t, wide, work.qkv, wide);
    const Rows go = floats_of(dout.row(sample * t) + k * wide, dout.stride, t, wide, work.out, wide);
    const Rows keys = floats_of(kv.row(sample * t) + k * 2 * d, kv.stride, t, 2 * d, work.dqkv, 2 * d);
    transposed_rows(keys.data, keys.ld, t, d, work.keys);
    transposed_rows(keys.data + d, keys.ld, t, d, work.values);
    const Rows key_rows = whole_vectors(keys.data, keys.ld, t, d, work.rows);
    LeafCounter counter;
    for (Index leaf = 0; leaf < fused_blocks(t); ++leaf) {
      const Index begin = leaf * kFusedBlock, end = begin + kFusedBlock;
      for (Index g = 0; g < s.group; ++g) {
        const Index h = k * s.group + g;
        const FusedHead<T> head{Rows{q.data + g * d, q.ld},
                                Rows{go.data + g * d, go.ld},
                                key_rows,
                                dq.row(sample * t) + h * d,
                                dq.stride,
                                {out.row(sample * t) + h * d, t, d, out.stride},
                                {stats.row((sample * s.heads + h) * t), t, 2, stats.stride},
                                drop.first_sample + static_cast<std::uint32_t>(sample),
                                s.first_head + h};
        fused_block_backward(s, sight, drop, work, head, g == 0, begin, end, counter.top);
      }
      LeafCounter::push(counter, work, leaf, t, sight.keys(end - 1));
    }
    LeafCounter::fold(counter, work, t);
    for (int which = 0; which < 2; ++which) {
      const float* const root = work.leaf(0, which, t);
      for (Index i = 0; i < t; ++i) {
        float* const to = dkv.row(sample * t + i) + (k * 2 + which) * d;
        for_vectors(d, [&](Index c, auto lanes)
                           SEEKSIM_LAMBDA { store_lanes(to + c, lanes, load_lanes(root + i * work.d + c, lanes)); });
      }
    }
  }
}
