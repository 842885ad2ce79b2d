#include "attention.cuh"

// delta = do·o, a warp a row and head.
template <class T> LF_DEV void attention_delta(const Attention& a) {
  i64 at = (i64)blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
  float s = 0;
  if (at < a.t * a.h) {
    for (i64 i = threadIdx.x % 32; i < a.e; i += 32) s = fmaf(ld<T>(a.dout, at * a.e + i), ld<T>(a.o, at * a.e + i), s);
  }
  s = warp_sum(s);
  if (at < a.t * a.h && threadIdx.x % 32 == 0) a.delta_out[at] = s;
}
LF_TYPED(attention_delta, Attention)

// Own rows are queries.
template <class T, int N, bool biased = false> LF_DEV void attention_dq(const Attention& a) {
  LF_SHARED(float, q);
  i64 step = a.d + 1, wide = a.e + 1;
  float *dout = q + kOwn * step, *k = dout + kOwn * wide, *v = k + kOther * step, *ds = v + kOther * wide;
  int lane = threadIdx.x % kLanes, own = threadIdx.x / kLanes;
  i64 head = blockIdx.y, group = head * a.g / a.h, row0 = (i64)blockIdx.x * kOwn, row = row0 + own;
  fetch<T>(q, step, a.q, row0, kOwn, a.t, a.h, head, a.d);
  fetch<T>(dout, wide, a.dout, row0, kOwn, a.t, a.h, head, a.e);
  Range r = keys_of(a, row), all = over_block(r);
  i64 shift = biased && r.inside ? shift_of(a, a.cu_q, row) : 0;
  float acc[N] = {}, p, lse = row < a.t ? a.lse_in[row * a.h + head] : 0, delta = row < a.t ? a.delta[row * a.h + head] : 0;
  for (i64 k0 = all.from; k0 < all.to; k0 += kOther) {
    __syncthreads();
    fetch<T>(k, step, a.k, k0, kOther, a.s, a.g, group, a.d);
    fetch<T>(v, wide, a.v, k0, kOther, a.s, a.g, group, a.e);
    __syncthreads();
    for (int j = lane; j < kOther; j += kLanes) {
      i64 key = k0 + j;
      float g = LF_UNSEEN;
      if (key >= r.from && key < r.to && sees(a, row, key)) {
        g = score_bwd<biased>(a, dot_of(q + own * step, k + j * step, a.d), dot_of(dout + own * wide, v + j * wide, a.e), lse, delta, row, key,
                              shift, head, &p);
      }
      ds[own * kOther + j] = g;
    }
    __syncwarp();
    accumulate<N>(acc, ds + own * kOther, k, step, a.d, lane);
  }
  if (row < a.t) store_row<T, N>(a.dq, acc, 1, row, a.h, head, a.d, lane);
}
LF_WIDTHS(attention_dq)

// Own rows are keys; the query heads of a key head come in order.
template <class T, int N, bool biased = false> LF_DEV void attention_dkv(const Attention& a) {
  LF_SHARED(float, k);
  i64 step = a.d + 1, wide = a.e + 1;
  int lane = threadIdx.x % kLanes, own = threadIdx.x / kLanes;
  float *v = k + kOwn * step, *q = v + kOwn * wide, *dout = q + kOther * step, *w = dout + kOther * wide + own * kOther;
  i64 group = blockIdx.y, row0 = (i64)blockIdx.x * kOwn, key = row0 + own, heads = a.h / a.g;
  fetch<T>(k, step, a.k, row0, kOwn, a.s, a.g, group, a.d);
  fetch<T>(v, wide, a.v, row0, kOwn, a.s, a.g, group, a.e);
  Range r = queries_of(a, key), all = over_block(r);
  i64 shift = biased && r.inside ? shift_of(a, a.cu_k, key) : 0;
  float dk[N] = {}, dv[N] = {};
  for (i64 head = group * heads; head < (group + 1) * heads; head++) {
    for (i64 q0 = all.from; q0 < all.to; q0 += kOther) {
      __syncthreads();
      fetch<T>(q, step, a.q, q0, kOther, a.t, a.h, head, a.d);
      fetch<T>(dout, wide, a.dout, q0, kOther, a.t, a.h, head, a.e);
      __syncthreads();
      float g[kScores], p[kScores];
#pragma unroll
      for (int x = 0; x < kScores; x++) {
        int j = lane + x * kLanes;
        i64 row = q0 + j, at = row * a.h + head;
        g[x] = p[x] = LF_UNSEEN;
        if (row >= r.from && row < r.to && sees(a, row, key)) {
          g[x] = score_bwd<biased>(a, dot_of(q + j * step, k + own * step, a.d), dot_of(dout + j * wide, v + own * wide, a.e), a.lse_in[at],
                                   a.delta[at], row, key, shift, head, &p[x]);
        }
        w[j] = g[x];
      }
      __syncwarp();
      accumulate<N>(dk, w, q, step, a.d, lane);
      __syncwarp(); // probabilities take the place of gradients: a row's threads are of one warp
#pragma unroll
      for (int x = 0; x < kScores; x++) w[lane + x * kLanes] = p[x];
      __syncwarp();
      accumulate<N>(dv, w, dout, wide, a.e, lane);
    }
  }
  if (key >= a.s) return;
  store_row<T, N>(a.dk, dk, 1, key, a.g, group, a.d, lane);
  store_row<T, N>(a.dv, dv, 1, key, a.g, group, a.e, lane);
}
LF_WIDTHS(attention_dkv)

// The gradient of a bias: a block for a distance, a head and 64 queries, whose scores with that distance it adds up, then their sums in order.
enum { kBiasRows = 64 };
template <class T> LF_DEV void attention_dbias(const Attention& a) {
  i64 x = (i64)blockIdx.x - a.far, head = blockIdx.y, group = head * a.g / a.h;
  float sum = 0, p;
  for (i64 i = 0; i < kBiasRows; i++) {
    i64 row = (i64)blockIdx.z * kBiasRows + i, at = row * a.h + head;
    Range r = keys_of(a, row);
    if (!r.inside) continue;
    i64 shift = shift_of(a, a.cu_q, row), lo = row + shift + x, hi = lo + 1;
    if (x == -a.far) lo = r.from; // and all that are farther
    if (x == a.far) hi = r.to;
    if (lo < r.from) lo = r.from;
    if (hi > r.to) hi = r.to;
    for (i64 key = lo + threadIdx.x; key < hi; key += blockDim.x) {
      const T *q = (const T*)a.q + at * a.d, *k = (const T*)a.k + (key * a.g + group) * a.d;
      const T *dout = (const T*)a.dout + at * a.e, *v = (const T*)a.v + (key * a.g + group) * a.e;
      float s = 0, dp = 0;
      for (i64 c = 0; c < a.d; c++) s = fmaf(widen(q[c]), widen(k[c]), s);
      for (i64 c = 0; c < a.e; c++) dp = fmaf(widen(dout[c]), widen(v[c]), dp);
      score_bwd<true>(a, s, dp, a.lse_in[at], a.delta[at], row, key, shift, head, &p);
      sum += p * (dp - a.delta[at]);
    }
  }
  sum = block_sum(sum);
  if (threadIdx.x == 0) a.delta_out[((i64)blockIdx.z * gridDim.x + blockIdx.x) * a.h + head] = sum;
}
LF_TYPED(attention_dbias, Attention)

LF_DEV void dbias_total(const Attention& a) {
  i64 n = (2 * a.far + 1) * a.h;
  LF_EACH(i, n) {
    double s = 0;
    for (i64 c = 0; c < a.chunks; c++) s += a.delta_out[c * n + i];
    st_any(a.dbias, i, s, a.bias_type);
  }
}
LF_ONE(attention_dbias_sum, dbias_total, Attention)
