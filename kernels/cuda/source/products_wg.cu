#include "wgmma.cuh"

// Products of 16-bit operands by Hopper's tensor cores: a block of eight warps has 128 by 256 results, four warps 64 by 256 of them. Four
// stages of 64 terms: one is computed with while the one before ends and the next two are fetched. Sums are in order of terms, sixteen at
// a time, as in products.cu, whose Product this is.
enum { kWgRows = 128, kWgCols = 256, kWgTerms = 64, kWgStages = 4, kWgStage = (kWgRows + kWgCols) * kWgTerms };

// Terms c0.. of n rows of an operand from one on to panels: a row of a panel has terms of one row, or rows of one term.
template <class T, int n, bool turned>
LF_DEV void fetch_panels(T* to, const T* x, i64 first, i64 rows, i64 c0, i64 k1, i64 step, bool whole) {
  if (!turned) {
    int i = threadIdx.x / 8, c = threadIdx.x % 8 * 8;
    const T* at = x + (first + i) * step + c0 + c;
    T* place = to + in_panel(i, c / 8);
#pragma unroll
    for (int pass = 0; pass < n / 32; pass++, at += 32 * step, place += 32 * kPanel) {
      i64 left = first + i + pass * 32 < rows ? k1 - c0 - c : 0;
      if (whole && left >= 8) copy_async(place, at);
      else fetch_eight(place, at, left);
    }
  } else {
    const int pass_terms = 256 / (n / 8);
    int t = threadIdx.x / (n / 8), i = threadIdx.x % (n / 8) * 8;
    const T* at = x + (c0 + t) * step + first + i;
    T* place = to + i / 64 * kWgTerms * kPanel + in_panel(t, i % 64 / 8);
#pragma unroll
    for (int pass = 0; pass < kWgTerms / pass_terms; pass++, at += pass_terms * step, place += pass_terms * kPanel) {
      i64 left = c0 + t + pass * pass_terms < k1 ? rows - first - i : 0;
      if (whole && left >= 8) copy_async(place, at);
      else fetch_eight(place, at, left);
    }
  }
}

// A tile of results in shared memory, whose rows are kWgStep apart, to memory: eights of a row.
enum { kWgStep = kWgCols + 8 };
template <class T> LF_DEV void put_tile(const Product& p, char* y, const float* results, i64 m0, i64 m1, i64 n0) {
  i64 rows = m1 - m0 < kWgRows ? m1 - m0 : kWgRows, size = p.wide ? 4 : sizeof(T);
  bool whole = ((u64)y | (u64)(p.y_row * size)) % 16 == 0;
#pragma unroll 1
  for (int e = threadIdx.x; e < (int)rows * (kWgCols / 8); e += 256) {
    i64 i = e / (kWgCols / 8), j = n0 + e % (kWgCols / 8) * 8, at = (m0 + i) * p.y_row + j;
    int n = (int)(p.n - j < 8 ? p.n - j : 8);
    float f[8], old[8];
    if (n <= 0) continue;
    load_eight(f, results + i * kWgStep + j - n0, true);
#pragma unroll
    for (int c = 0; c < 8; c++)
      if (p.bias && c < n) f[c] += ld<T>(p.bias, j + c);
    if (p.wide && p.add) {
      load_eight(old, (const float*)y + at, whole, n);
#pragma unroll
      for (int c = 0; c < 8; c++) f[c] = old[c] + f[c];
    }
    if (p.wide) store_eight((float*)y + at, f, whole, n);
    else store_eight((T*)y + at, f, whole, n);
  }
}

LF_DEV bool by_sixteen(const void* x, i64 step) { return (u64)x % 16 == 0 && step % 8 == 0; }

template <class T, bool turned_a, bool turned_b>
LF_DEV void wg_tile(const Product& p, const T* a, const T* b, char* y, i64 m0, i64 m1, i64 n0, i64 k0, i64 k1) {
#ifdef LF_HOPPER
  LF_SHARED(T, space);
  T* stages = space + (1024 - (u64)space % 1024) % 1024 / sizeof(T); // panels begin on multiples of 1024 bytes
  int lane = threadIdx.x % 32, i0 = threadIdx.x / 128 * 64;
  i64 a_step = turned_a ? p.a_col : p.a_row, b_step = turned_b ? p.b_col : p.b_row;
  bool whole_a = by_sixteen(a, a_step), whole_b = by_sixteen(b, b_step);
  float acc[128] = {};
  auto fetch = [&](i64 number) {
    i64 c0 = k0 + number * kWgTerms;
    if (c0 < k1) {
      T* to = stages + number % kWgStages * kWgStage;
      fetch_panels<T, kWgRows, turned_a>(to, a, m0, m1, c0, k1, a_step, whole_a);
      fetch_panels<T, kWgCols, turned_b>(to + kWgRows * kWgTerms, b, n0, p.n, c0, k1, b_step, whole_b);
    }
    close_group();
  };
  fetch(0);
  fetch(1);
  for (i64 number = 0; k0 + number * kWgTerms < k1; number++) {
    wait_groups<1>();
    show_copies();
    __syncthreads(); // this stage is there, and all are done with the one before the last
    fetch(number + 2);
    const T *as = stages + number % kWgStages * kWgStage, *bs = as + kWgRows * kWgTerms;
    begin_products();
#pragma unroll
    for (int c = 0; c < kWgTerms; c += 16) multiply_panels<T, turned_a, turned_b>(acc, as, i0, bs, c, kWgTerms * kPanel);
    close_products();
    wait_products<1>();
  }
  wait_products<0>();
  settle_products<128>(acc);
  __syncthreads(); // stages have been computed with, and their place takes the results
  float* results = (float*)stages + (i0 + threadIdx.x % 128 / 32 * 16 + lane / 4) * kWgStep + lane % 4 * 2;
#pragma unroll
  for (int e = 0; e < 128; e++) results[e % 4 / 2 * 8 * kWgStep + e / 4 * 8 + e % 2] = acc[e];
  __syncthreads();
  put_tile<T>(p, y, (const float*)stages, m0, m1, n0);
#endif
}

// The tile of a block: eight tiles of rows go over all columns before the next eight, so that what blocks read at a time lies in the cache.
LF_DEV void place_of(i64* i, i64* j) {
  i64 id = (i64)blockIdx.y * gridDim.x + blockIdx.x, many = 8 * (i64)gridDim.y, first = id / many * 8;
  i64 rows = (i64)gridDim.x - first < 8 ? (i64)gridDim.x - first : 8;
  *i = first + id % many % rows;
  *j = id % many / rows;
}

// By rows: linear; its b turned: gradients of inputs; both: gradients of weights.
template <class T, bool turned_a, bool turned_b> LF_DEV void wg_product(const Product& p) {
  i64 i, j;
  place_of(&i, &j);
  wg_tile<T, turned_a, turned_b>(p, (const T*)p.a, (const T*)p.b, (char*)p.y, i * kWgRows, p.m, j * kWgCols, 0, p.k);
}
template <class T, bool turned_b> LF_DEV void wg_rows(const Product& p) {
  i64 left, j, g = 0;
  place_of(&left, &j);
  for (; g < p.groups; g++) {
    i64 tiles = (p.off[g + 1] - p.off[g] + kWgRows - 1) / kWgRows;
    if (left < tiles) break;
    left -= tiles;
  }
  if (g == p.groups) return;
  wg_tile<T, false, turned_b>(p, (const T*)p.a, (const T*)p.b + g * p.b_group, (char*)p.y, p.off[g] + left * kWgRows, p.off[g + 1],
                              j * kWgCols, 0, p.k);
}
template <class T> LF_DEV void wg_terms(const Product& p) {
  i64 g = blockIdx.z, i, j;
  place_of(&i, &j);
  wg_tile<T, true, true>(p, (const T*)p.a, (const T*)p.b, (char*)p.y + g * p.y_group * sizeof(float), i * kWgRows, p.m, j * kWgCols,
                         p.off[g], p.off[g + 1]);
}

#define LF_WG(k, body)                                                \
  template <class T> LF_DEV void k##_half(const Product& p) { body; } \
  LF_BLOCK(k##_bf16, k##_half<bf16>, Product, 256)                    \
  LF_BLOCK(k##_f16, k##_half<f16>, Product, 256)
LF_WG(product_wg, (wg_product<T, false, false>(p)))
LF_WG(product_wg_dx, (wg_product<T, false, true>(p)))
LF_WG(product_wg_dw, (wg_product<T, true, true>(p)))
LF_WG(product_wg_rows, (wg_rows<T, false>(p)))
LF_WG(product_wg_rows_dx, (wg_rows<T, true>(p)))
LF_WG(product_wg_terms, (wg_terms<T>(p)))
