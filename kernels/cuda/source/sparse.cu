#include "sparse.cuh"

// Which head of which query a row of the block is.
struct Picked {
  i64 query, group, first, last, head; // heads of the block from first to last
};
LF_DEV Picked picked(const Sparse& a) {
  i64 each = a.h / a.g, group = blockIdx.y, first = group * each + (i64)blockIdx.z * kOwn;
  i64 last = first + kOwn < (group + 1) * each ? first + kOwn : (group + 1) * each;
  return {(i64)blockIdx.x, group, first, last, first + threadIdx.x / kLanes};
}

template <class T, int N> LF_DEV void attention_sparse(const Sparse& a) {
  LF_SHARED(float, q);
  i64 step = a.d + 1;
  float *k = q + kOwn * step, *v = k + kOther * step, *ps = v + kOther * a.e;
  int lane = threadIdx.x % kLanes, own = threadIdx.x / kLanes;
  Picked at = picked(a);
  float* p = ps + own * kOther;
  const i32* list = a.idx + at.query * a.n;
  fetch<T>(q, step, a.q, at.query * a.h + at.first, kOwn, at.query * a.h + at.last, 1, 0, a.d);
  float acc[N] = {}, top = -INFINITY, sum = 0, any = 0;
  for (i64 from = 0; from < a.n; from += kOther) {
    __syncthreads();
    fetch_listed<T>(k, step, a.k, list + from, a.n - from, a.g, at.group, a.d);
    fetch_listed<T>(v, a.e, a.v, list + from, a.n - from, a.g, at.group, a.e);
    __syncthreads();
    float s[kScores], most = -INFINITY, add = 0;
    bool see[kScores];
    for (int j = 0; j < kScores; j++) {
      i64 c = lane + kLanes * j;
      see[j] = from + c < a.n && list[from + c] >= 0;
      s[j] = see[j] ? (float)a.scale * dot_of(q + own * step, k + c * step, a.d) : -INFINITY;
      most = fmaxf(most, s[j]);
      if (see[j]) any = 1;
    }
    most = fmaxf(top, lanes_max(most));
    float base = most == -INFINITY ? 0 : most, keep = expf(top - base);
    for (int j = 0; j < kScores; j++) {
      float w = see[j] ? expf(s[j] - base) : LF_UNSEEN;
      p[lane + kLanes * j] = w;
      add += w;
    }
    sum = sum * keep + lanes_sum(add);
    top = most;
    for (int c = 0; c < N; c++) acc[c] *= keep;
    __syncwarp();
    accumulate<N>(acc, p, v, a.e, a.e, lane);
    __syncwarp();
  }
  any = lanes_max(any);
  if (at.head >= at.last) return;
  store_row<T, N>(a.out, acc, sum != 0 ? 1 / sum : any != 0 ? NAN : 0, at.query, a.h, at.head, a.e, lane);
  if (lane == 0) a.lse[at.query * a.h + at.head] = sum == 0 ? -INFINITY : top + logf(sum);
}
LF_PICKED(attention_sparse)

// delta = do·o, a warp a query and head.
template <class T> LF_DEV void sparse_delta(const Sparse& a) {
  i64 at = (i64)blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
  float s = 0;
  if (at < a.t * a.h) {
    for (i64 i = threadIdx.x % 32; i < a.e; i += 32) s = fmaf(ld<T>(a.dout, at * a.e + i), ld<T>(a.o, at * a.e + i), s);
  }
  s = warp_sum(s);
  if (at < a.t * a.h && threadIdx.x % 32 == 0) a.delta_out[at] = s;
}
LF_TYPED(sparse_delta, Sparse)

// The gradient of one score, and in p its probability.
LF_DEV float picked_bwd(const Sparse& a, float product, float dp, float lse, float delta, float* p) {
  *p = expf(at_most_0((float)a.scale * product - lse));
  return (float)a.scale * *p * (dp - delta) + 0.0f; // never -0
}

template <class T, int N> LF_DEV void sparse_dq(const Sparse& a) {
  LF_SHARED(float, q);
  i64 step = a.d + 1, wide = a.e + 1;
  float *dout = q + kOwn * step, *k = dout + kOwn * wide, *v = k + kOther * step, *ds = v + kOther * wide;
  int lane = threadIdx.x % kLanes, own = threadIdx.x / kLanes;
  Picked at = picked(a);
  i64 row = at.query * a.h;
  const i32* list = a.idx + at.query * a.n;
  fetch<T>(q, step, a.q, row + at.first, kOwn, row + at.last, 1, 0, a.d);
  fetch<T>(dout, wide, a.dout, row + at.first, kOwn, row + at.last, 1, 0, a.e);
  bool mine = at.head < at.last;
  float acc[N] = {}, p, lse = mine ? a.lse_in[row + at.head] : 0, delta = mine ? a.delta[row + at.head] : 0;
  for (i64 from = 0; from < a.n; from += kOther) {
    __syncthreads();
    fetch_listed<T>(k, step, a.k, list + from, a.n - from, a.g, at.group, a.d);
    fetch_listed<T>(v, wide, a.v, list + from, a.n - from, a.g, at.group, a.e);
    __syncthreads();
    for (int j = lane; j < kOther; j += kLanes) {
      float g = LF_UNSEEN;
      if (mine && from + j < a.n && list[from + j] >= 0)
        g = picked_bwd(a, dot_of(q + own * step, k + j * step, a.d), dot_of(dout + own * wide, v + j * wide, a.e), lse, delta, &p);
      ds[own * kOther + j] = g;
    }
    __syncwarp();
    accumulate<N>(acc, ds + own * kOther, k, step, a.d, lane);
    __syncwarp();
  }
  if (mine) store_row<T, N>(a.dq, acc, 1, at.query, a.h, at.head, a.d, lane);
}
LF_PICKED(sparse_dq)

// A block has a head of a key, and goes over the queries that list it, in order, and their heads: 32 pairs at a time, four threads each;
// then each thread has columns of both gradients.
enum { kColumnsOfThread = 5 }; // of 128 threads: 640
template <class T> LF_DEV void sparse_dkv(const Sparse& a) {
  LF_SHARED(float, k);
  i64 step = a.d + 1, wide = a.e + 1, key = blockIdx.x, group = blockIdx.y, each = a.h / a.g;
  float *v = k + step, *q = v + wide, *dout = q + kOther * step, *ds = dout + kOther * wide, *ps = ds + kOther;
  float dk[kColumnsOfThread] = {}, dv[kColumnsOfThread] = {};
  fetch<T>(k, step, a.k, key, 1, a.s, a.g, group, a.d);
  fetch<T>(v, wide, a.v, key, 1, a.s, a.g, group, a.e);
  Range r = places_of(a.sorted, a.t * a.n, key);
  i64 pairs = (r.to - r.from) * each;
  int pair = threadIdx.x / 4, quarter = threadIdx.x % 4;
  for (i64 from = 0; from < pairs; from += kOther) {
    __syncthreads();
    for (i64 i = 0; i < kOther; i++) {
      i64 at = from + i < pairs ? (i64)(a.sorted[r.from + (from + i) / each] & 0xffffffffu) / a.n * a.h + group * each + (from + i) % each : -1;
      LF_ROW(c, a.d) q[i * step + c] = at >= 0 ? ld<T>(a.q, at * a.d + c) : 0;
      LF_ROW(c, a.e) dout[i * wide + c] = at >= 0 ? ld<T>(a.dout, at * a.e + c) : 0;
    }
    __syncthreads();
    float s = 0, dp = 0, p = LF_UNSEEN, g = LF_UNSEEN;
    for (i64 c = quarter; c < a.d; c += 4) s = fmaf(q[pair * step + c], k[c], s);
    for (i64 c = quarter; c < a.e; c += 4) dp = fmaf(dout[pair * wide + c], v[c], dp);
    for (int o = 2; o > 0; o >>= 1) s += __shfl_xor_sync(FULL, s, o), dp += __shfl_xor_sync(FULL, dp, o);
    if (quarter == 0) {
      if (from + pair < pairs) {
        i64 at = (i64)(a.sorted[r.from + (from + pair) / each] & 0xffffffffu) / a.n * a.h + group * each + (from + pair) % each;
        g = picked_bwd(a, s, dp, a.lse_in[at], a.delta[at], &p);
      }
      ds[pair] = g;
      ps[pair] = p;
    }
    __syncthreads();
    for (int i = 0; i < kOther; i++) {
      if (bits_of(ds[i]) == 0x80000000u) continue;
#pragma unroll
      for (int c = 0; c < kColumnsOfThread; c++) {
        i64 j = threadIdx.x + 128 * c;
        if (j < a.d) dk[c] = fmaf(ds[i], q[i * step + j], dk[c]);
        if (j < a.e) dv[c] = fmaf(ps[i], dout[i * wide + j], dv[c]);
      }
    }
  }
#pragma unroll
  for (int c = 0; c < kColumnsOfThread; c++) {
    i64 j = threadIdx.x + 128 * c;
    if (j < a.d) st<T>(a.dk, (key * a.g + group) * a.d + j, dk[c]);
    if (j < a.e) st<T>(a.dv, (key * a.g + group) * a.e + j, dv[c]);
  }
}
LF_TYPED(sparse_dkv, Sparse)

// The keys that a query sees before any is chosen.
LF_DEV void visible_keys_all(const Attention& a) {
  LF_EACH(i, a.t) {
    Range r = keys_of(a, i);
    ((i32*)a.out)[2 * i] = (i32)r.from;
    ((i32*)a.out)[2 * i + 1] = (i32)r.to;
    a.lse[i] = r.inside ? (float)(1 / (double)(a.cu_q[a.c] - a.cu_q[0])) : 0;
  }
}
LF_ONE(visible_keys, visible_keys_all, Attention)
