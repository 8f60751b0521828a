// Whole tensors of random words. Included after dropout.inl, which has the vectors of counters.

// Block l of a vector's is the counter's number plus l, with a carry from `element` into `sample`.
void philox_words_body(PhiloxCounter first, std::uint64_t key, std::uint32_t* words, Index blocks) {
  const std::uint64_t number = std::uint64_t{first.sample} << 32 | first.element;
  for (Index done = 0; done < blocks; done += kW) {
    std::uint32_t of[4][kW];
    for (int l = 0; l < kW; ++l) {
      const std::uint64_t block = number + static_cast<std::uint64_t>(done + l);
      of[0][l] = static_cast<std::uint32_t>(block);
      of[1][l] = static_cast<std::uint32_t>(block >> 32);
    }
    Vu c[4] = {{}, {}, VectorOfCounters::ulit(first.op), VectorOfCounters::ulit(first.step)};
    __builtin_memcpy(&c[0], of[0], sizeof c[0]);
    __builtin_memcpy(&c[1], of[1], sizeof c[1]);
    philox_body<VectorOfCounters>(c, static_cast<std::uint32_t>(key), static_cast<std::uint32_t>(key >> 32));
    for (int w = 0; w < 4; ++w) __builtin_memcpy(of[w], &c[w], sizeof c[w]);
    const Index whole = min_of(Index{kW}, blocks - done);
    for (Index l = 0; l < whole; ++l) {
      for (int w = 0; w < 4; ++w) words[4 * (done + l) + w] = of[w][l];
    }
  }
}
