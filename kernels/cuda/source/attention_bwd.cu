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
template <class T, int N> LF_DEV void attention_dq(const Attention& a) {
  LF_SHARED(float, q);
  i64 step = a.d + 1, wide = a.e + 1;
  float *dout = q + kOwn * step, *k = dout + kOwn * wide, *v = k + kOther * step, *ds = v + kOther * wide;
  int lane = threadIdx.x % kLanes, own = threadIdx.x / kLanes;
  i64 head = blockIdx.y, group = head * a.g / a.h, row0 = (i64)blockIdx.x * kOwn, row = row0 + own;
  fetch<T>(q, step, a.q, row0, kOwn, a.t, a.h, head, a.d);
  fetch<T>(dout, wide, a.dout, row0, kOwn, a.t, a.h, head, a.e);
  Range r = keys_of(a, row), all = over_block(r);
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
        g = score_bwd(a, dot_of(q + own * step, k + j * step, a.d), dot_of(dout + own * wide, v + j * wide, a.e), lse, delta, &p);
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
template <class T, int N> LF_DEV void attention_dkv(const Attention& a) {
  LF_SHARED(float, k);
  i64 step = a.d + 1, wide = a.e + 1;
  float *v = k + kOwn * step, *q = v + kOwn * wide, *dout = q + kOther * step, *ds = dout + kOther * wide, *ps = ds + kOwn * kOther;
  int lane = threadIdx.x % kLanes, own = threadIdx.x / kLanes;
  i64 group = blockIdx.y, row0 = (i64)blockIdx.x * kOwn, key = row0 + own, heads = a.h / a.g;
  fetch<T>(k, step, a.k, row0, kOwn, a.s, a.g, group, a.d);
  fetch<T>(v, wide, a.v, row0, kOwn, a.s, a.g, group, a.e);
  Range r = queries_of(a, key), all = over_block(r);
  float dk[N] = {}, dv[N] = {};
  for (i64 head = group * heads; head < (group + 1) * heads; head++) {
    for (i64 q0 = all.from; q0 < all.to; q0 += kOther) {
      __syncthreads();
      fetch<T>(q, step, a.q, q0, kOther, a.t, a.h, head, a.d);
      fetch<T>(dout, wide, a.dout, q0, kOther, a.t, a.h, head, a.e);
      __syncthreads();
      for (int j = lane; j < kOther; j += kLanes) {
        i64 row = q0 + j, at = row * a.h + head;
        float g = LF_UNSEEN, p = LF_UNSEEN;
        if (row >= r.from && row < r.to && sees(a, row, key)) {
          g = score_bwd(a, dot_of(q + j * step, k + own * step, a.d), dot_of(dout + j * wide, v + own * wide, a.e), a.lse_in[at], a.delta[at], &p);
        }
        ds[own * kOther + j] = g;
        ps[own * kOther + j] = p;
      }
      __syncwarp();
      accumulate<N>(dk, ds + own * kOther, q, step, a.d, lane);
      accumulate<N>(dv, ps + own * kOther, dout, wide, a.e, lane);
    }
  }
  if (key >= a.s) return;
  store_row<T, N>(a.dk, dk, 1, key, a.g, group, a.d, lane);
  store_row<T, N>(a.dv, dv, 1, key, a.g, group, a.e, lane);
}
LF_WIDTHS(attention_dkv)
