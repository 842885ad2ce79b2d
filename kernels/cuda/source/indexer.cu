#include "sparse.cuh"

// The indexer's scores of a chunk of queries from products z [query·head, key], and the best n of each in order of keys.
LF_DEV void add_one(u32* p) {
#ifdef __CUDA_ARCH__
  atomicAdd(p, 1u);
#else
  ++*p;
#endif
}

// In the order of numbers; what is not a number is greatest.
LF_DEV u32 in_order(float f) {
  if (f != f) f = INFINITY;
  u32 u = bits_of(f + 0.0f); // -0 is 0
  return u >> 31 ? ~u : u | 0x80000000u;
}

// A block of 256 threads for a query. Its threads share out keys in runs, so that counts of runs tell where each one's chosen go.
LF_DEV void index_topk_of(const Indexer& a) {
  __shared__ u32 count[256], prefix, left, greater[257], equal[257];
  i64 at = blockIdx.x, query = a.first + at, from = a.see[2 * query], to = a.see[2 * query + 1];
  u32* order = (u32*)a.score + at * a.s;
  i32* out = (i32*)a.out + query * a.n;
  LF_ROW(j, to - from) {
    float s = 0;
    for (i64 i = 0; i < a.m; i++) {
      float x = a.z[(at * a.m + i) * a.s + from + j];
      s += a.iw[query * a.m + i] * (x < 0 ? 0 : x);
    }
    order[j] = in_order((float)a.scale * s);
  }
  i64 n = to - from < a.n ? to - from : a.n, run = (to - from + 255) / 256;
  if (threadIdx.x == 0) prefix = 0, left = (u32)n;
  for (int shift = 24; shift >= 0; shift -= 8) { // the n-th greatest, eight bits at a time
    __syncthreads();
    count[threadIdx.x] = 0;
    __syncthreads();
    LF_ROW(j, to - from)
      if (shift == 24 || order[j] >> (shift + 8) == prefix >> (shift + 8)) add_one(count + (order[j] >> shift & 255));
    __syncthreads();
    if (threadIdx.x == 0 && n > 0) {
      int b = 255;
      for (; b > 0 && count[b] < left; b--) left -= count[b];
      prefix |= (u32)b << shift;
    }
  }
  __syncthreads();
  i64 lo = threadIdx.x * run, hi = lo + run < to - from ? lo + run : to - from;
  u32 above = 0, same = 0;
  for (i64 j = lo; j < hi; j++) above += order[j] > prefix, same += order[j] == prefix;
  greater[threadIdx.x] = above;
  equal[threadIdx.x] = same;
  __syncthreads();
  if (threadIdx.x == 0) {
    u32 g = 0, e = 0;
    for (int i = 0; i < 256; i++) {
      u32 x = greater[i], y = equal[i];
      greater[i] = g, equal[i] = e;
      g += x, e += y;
    }
  }
  __syncthreads();
  u32 g = greater[threadIdx.x], e = equal[threadIdx.x];
  for (i64 j = lo; j < hi && n > 0; j++) {
    u32 takes = e < left ? e : left;
    if (order[j] > prefix) out[g++ + takes] = (i32)(from + j);
    else if (order[j] == prefix) {
      if (e < left) out[g + takes] = (i32)(from + j);
      e++;
    }
  }
  for (i64 j = n + threadIdx.x; j < a.n; j += 256) out[j] = -1;
}
LF_ONE(index_topk, index_topk_of, Indexer)

// How many keys a query has, and which they are.
LF_DEV i64 keys_in(const Indexer& a, i64 query) { return a.listed ? a.n : a.see[2 * query + 1] - a.see[2 * query]; }
LF_DEV i64 key_at(const Indexer& a, i64 query, i64 b) { return a.listed ? a.idx[query * a.n + b] : a.see[2 * query] + b; }

template <class T> LF_DEV float dot_rows(const void* x, i64 at, const void* y, i64 other, i64 n) {
  float s = 0;
  for (i64 c = 0; c < n; c++) s = fmaf(ld<T>(x, at * n + c), ld<T>(y, other * n + c), s);
  return s;
}

// The logarithm of the sum of exponentials of n numbers of a block; those of no key are -Inf.
LF_DEV float block_log_sum(const float* x, i64 n) {
  float top = -INFINITY, s = 0;
  LF_ROW(b, n) top = fmaxf(top, x[b]);
  top = block_max(top);
  if (top == -INFINITY) top = 0;
  LF_ROW(b, n) s += expf(x[b] - top);
  return top + logf(block_sum(s));
}

// Of each key of a query the logarithm of the indexer's share and attention's share, and what the query adds to the loss; again is for the
// gradient: log then becomes that of the score. A block for a query of the chunk.
template <class T> LF_DEV void index_shares(const Indexer& a) {
  i64 at = blockIdx.x, query = a.first + at, n = keys_in(a, query);
  float *logs = a.log + at * a.n, *share = a.share + at * a.n, *score = a.score + at * a.n, mean = a.mean[query];
  LF_ROW(b, n) {
    i64 j = key_at(a, query, b);
    float s = 0;
    for (i64 i = 0; j >= 0 && i < a.m; i++) {
      float x = dot_rows<T>(a.iq, query * a.m + i, a.ik, j, a.r);
      s += a.iw[query * a.m + i] * (x < 0 ? 0 : x);
    }
    logs[b] = j >= 0 ? (float)a.scale * s : -INFINITY;
    share[b] = 0;
  }
  float all = block_log_sum(logs, n);
  for (i64 i = 0; i < a.h; i++) {
    LF_ROW(b, n) {
      i64 j = key_at(a, query, b);
      score[b] = j >= 0 ? (float)a.attn_scale * dot_rows<T>(a.q, query * a.h + i, a.k, j * a.g + i * a.g / a.h, a.d) : -INFINITY;
    }
    float l = block_log_sum(score, n);
    LF_ROW(b, n) if (key_at(a, query, b) >= 0) share[b] += expf(score[b] - l) / (float)a.h;
  }
  double loss = 0;
  float by = a.again ? (float)a.scale * *a.dloss * mean : 0;
  LF_ROW(b, n) {
    bool is = key_at(a, query, b) >= 0;
    float l = at_most_0(logs[b] - all), p = share[b];
    if (is && p != 0) loss += (double)mean * p * (log((double)p) - l);
    if (a.again) logs[b] = is ? by * (expf(l) - p) : 0;
  }
  loss = block_sum(loss);
  if (threadIdx.x == 0 && !a.again) a.part[query] = loss;
}
LF_TYPED(index_shares, Indexer)

LF_DEV void index_total(const Indexer& a) {
  double s = 0;
  LF_ROW(i, a.count) s += a.part[i];
  s = block_sum(s);
  if (threadIdx.x == 0) *(float*)a.out = (float)s;
}
LF_ONE(index_loss, index_total, Indexer)

// Gradients of a query's head and weight: 128 keys at a time, a thread each, and then a thread for each column.
template <class T> LF_DEV void index_dq(const Indexer& a) {
  __shared__ float by[128];
  __shared__ i64 keys[128];
  i64 query = a.first + blockIdx.x, head = blockIdx.y, row = query * a.m + head, n = keys_in(a, query);
  const float* ds = a.log + (i64)blockIdx.x * a.n;
  float acc[4] = {}, dw = 0, w = a.iw[row];
  for (i64 from = 0; from < n; from += 128) {
    i64 b = from + threadIdx.x, j = b < n ? key_at(a, query, b) : -1;
    float s = j >= 0 ? dot_rows<T>(a.iq, row, a.ik, j, a.r) : 0;
    bool on = j >= 0 && !(s <= 0); // what is no number goes on
    if (on) dw += ds[b] * s;
    __syncthreads();
    by[threadIdx.x] = on ? ds[b] * w : 0;
    keys[threadIdx.x] = on ? j : -1;
    __syncthreads();
    for (int i = 0; i < 128; i++) {
      if (keys[i] < 0) continue;
#pragma unroll
      for (int c = 0; c < 4; c++)
        if (threadIdx.x + 128 * c < a.r) acc[c] = fmaf(by[i], ld<T>(a.ik, keys[i] * a.r + threadIdx.x + 128 * c), acc[c]);
    }
  }
  dw = block_sum(dw);
  if (threadIdx.x == 0) a.diw[row] = dw;
#pragma unroll
  for (int c = 0; c < 4; c++)
    if (threadIdx.x + 128 * c < a.r) st<T>(a.diq, row * a.r + threadIdx.x + 128 * c, acc[c]);
}
LF_TYPED(index_dq, Indexer)

// Adds to a key's gradient what the queries of a chunk give, in order: 32 pairs of queries and heads at a time, four threads each.
template <class T> LF_DEV void index_dk(const Indexer& a) {
  LF_SHARED(float, q);
  __shared__ float by[kOther];
  i64 key = blockIdx.x, step = a.r + 1;
  Range r = {0, a.count, true};
  if (a.listed) r = places_of(a.sorted, a.count * a.n, key);
  i64 pairs = (r.to - r.from) * a.m;
  int pair = threadIdx.x / 4, quarter = threadIdx.x % 4;
  float acc[4];
#pragma unroll
  for (int c = 0; c < 4; c++) acc[c] = a.again && threadIdx.x + 128 * c < a.r ? a.sum[key * a.r + threadIdx.x + 128 * c] : 0;
  for (i64 from = 0; from < pairs; from += kOther) {
    i64 p = from + pair, place = 0, b = 0, query = -1;
    if (p < pairs && a.listed) {
      place = (i64)(a.sorted[r.from + p / a.m] & 0xffffffffu);
      query = place / a.n;
      b = place % a.n;
    } else if (p < pairs) {
      i64 c = p / a.m, of = a.first + c;
      b = key - a.see[2 * of];
      if (key >= a.see[2 * of] && key < a.see[2 * of + 1]) query = c;
    }
    __syncthreads(); // the last pairs have been read
    float s = 0;
    i64 row = (a.first + query) * a.m + p % a.m;
    for (i64 c = quarter; query >= 0 && c < a.r; c += 4) {
      float x = ld<T>(a.iq, row * a.r + c);
      q[pair * step + c] = x;
      s = fmaf(x, ld<T>(a.ik, key * a.r + c), s);
    }
    for (int o = 2; o > 0; o >>= 1) s += __shfl_xor_sync(FULL, s, o);
    if (quarter == 0) by[pair] = query >= 0 && !(s <= 0) ? a.log[query * a.n + b] * a.iw[row] + 0.0f : LF_UNSEEN;
    __syncthreads();
    for (int i = 0; i < kOther; i++) {
      if (bits_of(by[i]) == 0x80000000u) continue;
#pragma unroll
      for (int c = 0; c < 4; c++)
        if (threadIdx.x + 128 * c < a.r) acc[c] = fmaf(by[i], q[i * step + threadIdx.x + 128 * c], acc[c]);
    }
  }
#pragma unroll
  for (int c = 0; c < 4; c++)
    if (threadIdx.x + 128 * c < a.r) a.sum[key * a.r + threadIdx.x + 128 * c] = acc[c];
}
LF_TYPED(index_dk, Indexer)
