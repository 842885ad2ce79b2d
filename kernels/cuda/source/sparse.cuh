#pragma once
#include "attention.cuh"

// Attention of each query to keys that it lists, and the indexer that lists them (kernels/ops_sparse.go). As in attention.cuh a block of 128
// threads owns 16 rows, 8 threads a row: here the heads of one query that share a head of keys.
struct Sparse {
  const void *q, *k, *v, *o, *dout;
  const i32* idx;
  const float *lse_in, *delta;
  const u64* sorted; // places of idx in order of the keys that they name
  void *out, *dq, *dk, *dv;
  float *lse, *delta_out;
  i64 t, s, h, g, d, e, n;
  double scale;
};

struct Indexer {
  const void *iq, *ik;
  const float* iw;
  const void *q, *k;
  const i32 *see, *idx;
  const float *mean, *dloss, *z;
  const u64* sorted;
  float *log, *share, *score; // rows of n for each query of a chunk
  double* part;               // of each query
  void *out, *diq;
  float *diw, *sum; // sum is dik in float32
  i64 first, count, s, m, r, h, g, d, n, listed, again;
  double scale, attn_scale;
};

#define LF_PICKED_OF(k, T, name)                     \
  LF_ONE(k##_128_##name, (k<T, 16>), Sparse)         \
  LF_ONE(k##_256_##name, (k<T, 32>), Sparse)         \
  LF_ONE(k##_576_##name, (k<T, 72>), Sparse)
#define LF_PICKED(k)         \
  LF_PICKED_OF(k, float, f32) \
  LF_PICKED_OF(k, bf16, bf16) \
  LF_PICKED_OF(k, f16, f16)

// The places in sorted order that name a key, of n.
LF_DEV Range places_of(const u64* sorted, i64 n, i64 key) {
  Range r = {0, 0, true};
  for (int end = 0; end < 2; end++) {
    i64 lo = 0, hi = n;
    while (lo < hi) {
      i64 mid = (lo + hi) / 2;
      if ((i64)(sorted[mid] >> 32) < key + end) lo = mid + 1;
      else hi = mid;
    }
    (end ? r.to : r.from) = lo;
  }
  return r;
}

// Rows of one head that a list names, to shared memory.
template <class T> LF_DEV void fetch_listed(float* to, i64 step, const void* x, const i32* list, i64 left, i64 heads, i64 head, i64 width) {
  for (i64 e = threadIdx.x; e < kOther * width; e += blockDim.x) {
    i64 i = e / width, c = e % width, j = i < left ? list[i] : -1;
    to[i * step + c] = j >= 0 ? ld<T>(x, (j * heads + head) * width + c) : 0;
  }
}
