#pragma once
#include "lf.cuh"

// Attention over packed sequences, without a matrix of scores. A block of 128 threads owns 16 rows of one head, 8 threads a row, and
// goes over the other side 32 rows at a time; the 8 threads share out a row's columns and the 32 scores.
struct Attention {
  const void *q, *k, *v, *o, *dout;
  const float *lse_in, *delta;
  const i32 *cu_q, *cu_k, *blocks, *pos_q, *pos_k, *near;
  const i32* place; // of each sequence's first query among its keys, or null: the last query is at the last key
  void *out, *dq, *dk, *dv;
  float *lse, *delta_out;
  i64 t, s, h, g, d, e, c, causal, window, tile, words;
  double scale, cap;
  const void* bias; // of distances from -far to far, by heads; or none
  void* dbias;
  i64 bias_type, far, chunks;
};

enum { kOwn = 16, kOther = 32, kLanes = 8, kScores = kOther / kLanes };

struct Range { i64 from, to; bool inside; };

// How far queries of a sequence are ahead of keys of the same number.
LF_DEV i64 ahead(const Attention& a, i64 s) {
  return a.place ? a.place[s] : (i64)(a.cu_k[s + 1] - a.cu_k[s]) - (a.cu_q[s + 1] - a.cu_q[s]);
}

// The keys that a row of queries may see, before masks.
LF_DEV Range keys_of(const Attention& a, i64 row) {
  Range r = {0, 0, false};
  if (row >= a.t || a.c == 0 || row < a.cu_q[0] || row >= a.cu_q[a.c]) return r;
  r.inside = true;
  i64 s = sequence_of(a.cu_q, a.c, row), q0 = a.cu_q[s], k0 = a.cu_k[s], n = a.cu_k[s + 1] - k0;
  i64 at = row - q0 + ahead(a, s), lo = 0, hi = n;
  if (a.causal && at + 1 < hi) hi = at + 1 < 0 ? 0 : at + 1;
  if (a.window > 0 && at - a.window + 1 > lo) lo = at - a.window + 1;
  r.from = k0 + (lo < hi ? lo : hi);
  r.to = k0 + hi;
  return r;
}

// The queries that may see a key.
LF_DEV Range queries_of(const Attention& a, i64 key) {
  Range r = {0, 0, false};
  if (key >= a.s || a.c == 0 || key < a.cu_k[0] || key >= a.cu_k[a.c]) return r;
  r.inside = true;
  i64 s = sequence_of(a.cu_k, a.c, key), q0 = a.cu_q[s], n = a.cu_q[s + 1] - q0;
  i64 at = key - a.cu_k[s] - ahead(a, s), lo = 0, hi = n;
  if (a.causal && at > 0) lo = at < n ? at : n;
  if (a.window > 0 && at + a.window < hi) hi = at + a.window < 0 ? 0 : at + a.window;
  r.from = q0 + (lo < hi ? lo : hi);
  r.to = q0 + hi;
  return r;
}

// What the masks say of a query and a key.
LF_DEV bool sees(const Attention& a, i64 i, i64 j) {
  if (a.blocks) {
    i64 b = j / a.tile;
    if (!((u32)a.blocks[i / a.tile * a.words + b / 32] >> (b % 32) & 1)) return false;
  }
  if (!a.near) return true;
  for (int x = 0; x < 3; x++) {
    i64 far = (i64)a.pos_k[j * 3 + x] - a.pos_q[i * 3 + x], back = a.near[2 * x], ahead = a.near[2 * x + 1];
    if ((back >= 0 && far < -back) || (ahead >= 0 && far > ahead)) return false;
  }
  return true;
}

// Rows from, of one head, of x [rows, heads, width] to shared memory with a step; zeros behind the last row.
template <class T>
LF_DEV void fetch(float* to, i64 step, const void* x, i64 from, i64 n, i64 rows, i64 heads, i64 head, i64 width) {
  for (i64 e = threadIdx.x; e < n * width; e += blockDim.x) {
    i64 i = e / width, j = e % width;
    to[i * step + j] = from + i < rows ? ld<T>(x, ((from + i) * heads + head) * width + j) : 0;
  }
}

LF_DEV float dot_of(const float* x, const float* y, i64 n) {
  float s = 0;
  for (i64 i = 0; i < n; i++) s = fmaf(x[i], y[i], s);
  return s;
}

// Over the 8 threads of a row.
LF_DEV float lanes_max(float v) {
  for (int o = kLanes / 2; o > 0; o >>= 1) v = fmaxf(v, __shfl_xor_sync(FULL, v, o));
  return v;
}
LF_DEV float lanes_sum(float v) {
  for (int o = kLanes / 2; o > 0; o >>= 1) v += __shfl_xor_sync(FULL, v, o);
  return v;
}

// The rows of the other side that any own row needs: whole for the block.
LF_DEV Range over_block(Range r) {
  __shared__ i64 from[kOwn], to[kOwn];
  __syncthreads();
  from[threadIdx.x / kLanes] = r.from;
  to[threadIdx.x / kLanes] = r.to;
  __syncthreads();
  Range all = {0, 0, false};
  for (int i = 0; i < kOwn; i++) {
    if (from[i] >= to[i]) continue;
    all.from = !all.inside || from[i] < all.from ? from[i] : all.from;
    all.to = !all.inside || to[i] > all.to ? to[i] : all.to;
    all.inside = true;
  }
  return all;
}

// How far the keys of a query's sequence begin behind its queries.
LF_DEV i64 shift_of(const Attention& a, const i32* cu, i64 row) {
  i64 s = sequence_of(cu, a.c, row);
  return (i64)a.cu_k[s] - a.cu_q[s];
}
// The score of a query and a key, of which shift is that of the sequence.
template <bool biased> LF_DEV float score_of(const Attention& a, float product, i64 row, i64 key, i64 shift, i64 head, float* slope) {
  if (!biased) return capped((float)a.scale * product, (float)a.cap, slope);
  *slope = 1;
  return (float)a.scale * product + (float)ld_any(a.bias, (a.far + clamp(key - row - shift, -a.far, a.far)) * a.h + head, a.bias_type);
}

// What stands for the weight of a pair that does not see each other: no weight is -0.
#define LF_UNSEEN -0.0f

// acc[c] += Σ p[j]·x[j, lane+8c] over pairs that see each other: others must not meet what is no number.
template <int N> LF_DEV void accumulate(float* acc, const float* p, const float* x, i64 step, i64 width, int lane) {
  for (int j = 0; j < kOther; j++) {
    float w = p[j];
    if (bits_of(w) == 0x80000000u) continue;
    for (int c = 0; c < N; c++) {
      if (lane + kLanes * c < width) acc[c] = fmaf(w, x[j * step + lane + kLanes * c], acc[c]);
    }
  }
}

template <class T, int N> LF_DEV void store_row(void* y, const float* acc, float by, i64 row, i64 heads, i64 head, i64 width, int lane) {
  for (int c = 0; c < N; c++) {
    i64 j = lane + kLanes * c;
    if (j < width) st<T>(y, (row * heads + head) * width + j, acc[c] * by);
  }
}

// The gradient of one score, and in p its probability.
template <bool biased>
LF_DEV float score_bwd(const Attention& a, float product, float dp, float lse, float delta, i64 row, i64 key, i64 shift, i64 head, float* p) {
  float slope, s = score_of<biased>(a, product, row, key, shift, head, &slope);
  *p = expf(at_most_0(s - lse));
  return (float)a.scale * slope * *p * (dp - delta) + 0.0f; // never -0
}

// Operands of 16 bits have kernels of their own where no bias is added: attention_tc.cu.
#define LF_WIDTHS(k)                             \
  LF_ONE(k##_64_f32, (k<float, 8>), Attention)   \
  LF_ONE(k##_128_f32, (k<float, 16>), Attention) \
  LF_ONE(k##_256_f32, (k<float, 32>), Attention) \
  LF_BIASED(k, float, f32)                       \
  LF_BIASED(k, bf16, bf16)                       \
  LF_BIASED(k, f16, f16)
#define LF_BIASED(k, T, name)                                       \
  LF_ONE(k##_bias_64_##name, (k<T, 8, true>), Attention)            \
  LF_ONE(k##_bias_256_##name, (k<T, 32, true>), Attention)
