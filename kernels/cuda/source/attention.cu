#include "attention.cuh"

// N·8 is the greatest width of a head.
template <class T, int N, bool biased = false> LF_DEV void attention(const Attention& a) {
  LF_SHARED(float, q);
  i64 step = a.d + 1;
  float *k = q + kOwn * step, *v = k + kOther * step, *ps = v + kOther * a.e;
  int lane = threadIdx.x % kLanes, own = threadIdx.x / kLanes;
  i64 head = blockIdx.y, group = head * a.g / a.h, row = (i64)blockIdx.x * kOwn + own;
  float* p = ps + own * kOther;
  fetch<T>(q, step, a.q, (i64)blockIdx.x * kOwn, kOwn, a.t, a.h, head, a.d);
  Range r = keys_of(a, row), all = over_block(r);
  float acc[N] = {}, top = -INFINITY, sum = 0, any = 0, slope;
  i64 shift = biased && r.inside ? shift_of(a, a.cu_q, row) : 0;
  for (i64 k0 = all.from; k0 < all.to; k0 += kOther) {
    __syncthreads();
    fetch<T>(k, step, a.k, k0, kOther, a.s, a.g, group, a.d);
    fetch<T>(v, a.e, a.v, k0, kOther, a.s, a.g, group, a.e);
    __syncthreads();
    float s[kScores], most = -INFINITY, add = 0;
    bool see[kScores];
    for (int j = 0; j < kScores; j++) {
      i64 key = k0 + lane + kLanes * j;
      see[j] = key >= r.from && key < r.to && sees(a, row, key);
      s[j] = see[j] ? score_of<biased>(a, dot_of(q + own * step, k + (lane + kLanes * j) * step, a.d), row, key, shift, head, &slope) : -INFINITY;
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
  }
  any = lanes_max(any);
  if (row >= a.t) return;
  // Scores that are all -Inf have no probabilities; a row that sees no key has none to have.
  store_row<T, N>(a.out, acc, sum != 0 ? 1 / sum : any != 0 ? NAN : 0, row, a.h, head, a.e, lane);
  if (lane == 0) a.lse[row * a.h + head] = !r.inside ? 0 : sum == 0 ? -INFINITY : top + logf(sum);
}
LF_WIDTHS(attention)
