#include "attention_tc.cuh"

// A kernel for scores that are products times a positive number, of all that lies in a range; and one, of half as many rows a block where
// those are 128, for caps and other masks and scales.
#define LF_ATTENTION(name, k, W, N, M)                      \
  LF_HALF(name, Attention, (k<T, W, N, M, false>(a)))       \
  LF_HALF(name##_masked, Attention, (k<T, W, 32, 1, true>(a)))

// Heads of 129 to 256 on devices with less shared memory: 84 KB a block instead of 135.
#define LF_ATTENTION_LEAN(name, k)                            \
  LF_HALF(name, Attention, (k<T, 256, 16, 1, false>(a)))      \
  LF_HALF(name##_masked, Attention, (k<T, 256, 16, 1, true>(a)))

// How many tiles lie in shared memory in a backward: of the lean kernels one, which comes while none is computed with.
template <int W, int N> struct Stages {
  enum { n = W == 256 && N == 16 ? 1 : 2 };
};

// Scores become powers of two: exp(s·scale − most) is 2^(s·scale·log₂e − most·log₂e), one product and sum.
template <class T, int W, int N, int M, bool special> LF_DEV void attention_tc(const Attention& a) {
  __shared__ Own<M> own;
  LF_SHARED(T, q);
  T* tiles = q + 64 * M * (W + 8);
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  i64 head = blockIdx.y, group = head * a.g / a.h, row0 = (i64)(gridDim.x - 1 - blockIdx.x) * 64 * M; // the longest first
  HeadRows<T> keys = rows_of<T>(a.k, a.s, a.g, group, a.d), values = rows_of<T>(a.v, a.s, a.g, group, a.e);
  own_of<true, M>(a, own, row0);
  Limits all = over_warps(own), some = own.of[warp];
  auto fetch = [&](i32 k0, int stage) {
    T* k = tiles + stage * 2 * N * (W + 8);
    if (k0 < all.to) {
      fetch_rows<T, W, N>(k, keys, k0);
      fetch_rows<T, W, N>(k + N * (W + 8), values, k0);
    }
    close_group();
  };
  fetch_rows<T, W, 64 * M>(q, rows_of<T>(a.q, a.t, a.h, head, a.d), (i32)row0);
  fetch(all.from, 0);
  float acc[M][W / 8][4] = {}, top[M][2], sum[M][2] = {}, slope, by_scale = special ? 1 : (float)a.scale * LF_LOG2E;
  i32 lo[M][2], hi[M][2];
  bool any[M][2];
#pragma unroll
  for (int m = 0; m < M; m++)
#pragma unroll
    for (int r = 0; r < 2; r++) {
      int at = warp * 16 * M + m * 16 + lane / 4 + r * 8;
      lo[m][r] = own.from[at], hi[m][r] = own.to[at];
      top[m][r] = -INFINITY;
      any[m][r] = !special && lo[m][r] < hi[m][r];
    }
  int stage = 0;
  for (i32 k0 = all.from; k0 < all.to; k0 += N, stage ^= 1) {
    fetch(k0 + N, stage ^ 1);
    wait_groups<1>();
    __syncthreads();
    const T *k = tiles + stage * 2 * N * (W + 8), *v = k + N * (W + 8);
    if (k0 < some.to && k0 + N > some.from) {
      float s[M][N / 8][4] = {};
      scores_of_tile<T, W, N, M>(s, q + warp * 16 * M * (W + 8), k);
      bool whole = !special && k0 >= some.all_from && k0 + N <= some.all_to;
#pragma unroll
      for (int m = 0; m < M; m++) {
        if (!whole)
#pragma unroll
          for (int j = 0; j < N / 8; j++)
#pragma unroll
            for (int x = 0; x < 4; x++) {
              int r = x / 2;
              i32 key = k0 + j * 8 + lane % 4 * 2 + x % 2;
              bool see = key >= lo[m][r] && key < hi[m][r];
              if (special && see) {
                see = sees(a, row0 + warp * 16 * M + m * 16 + lane / 4 + r * 8, key);
                s[m][j][x] = capped((float)a.scale * s[m][j][x], (float)a.cap, &slope) * LF_LOG2E;
                any[m][r] = any[m][r] || see;
              }
              if (!see) s[m][j][x] = -INFINITY;
            }
#pragma unroll
        for (int r = 0; r < 2; r++) {
          float most = s[m][0][2 * r];
#pragma unroll
          for (int j = 0; j < N / 8; j++) most = fmaxf(most, fmaxf(s[m][j][2 * r], s[m][j][2 * r + 1]));
          most = fmaxf(top[m][r], quad_max(most) * by_scale);
          float base = most == -INFINITY ? 0 : most, keep = exp2_of(top[m][r] - base), part = 0;
          top[m][r] = most;
          // Far out, the exact product of the greatest is too far from its rounded one, which is the base.
          if (fabsf(base) < 0x1p20f) {
#pragma unroll
            for (int j = 0; j < N / 8; j++) s[m][j][2 * r] = fmaf(s[m][j][2 * r], by_scale, -base), s[m][j][2 * r + 1] = fmaf(s[m][j][2 * r + 1], by_scale, -base);
          } else {
#pragma unroll
            for (int j = 0; j < N / 8; j++) s[m][j][2 * r] = s[m][j][2 * r] * by_scale - base, s[m][j][2 * r + 1] = s[m][j][2 * r + 1] * by_scale - base;
          }
#pragma unroll
          for (int j = 0; j < N / 8; j++)
#pragma unroll
            for (int x = 2 * r; x < 2 * r + 2; x++) {
              s[m][j][x] = exp2_of(s[m][j][x]);
              part += s[m][j][x];
            }
          sum[m][r] = fmaf(sum[m][r], keep, part);
#pragma unroll
          for (int i = 0; i < W / 8; i++) acc[m][i][2 * r] *= keep, acc[m][i][2 * r + 1] *= keep;
        }
      }
      add_tile<T, W, N, M>(acc, s, v);
    }
    __syncthreads(); // before this tile's place is fetched into
  }
#pragma unroll
  for (int m = 0; m < M; m++) {
    float by[2];
    i64 first = row0 + warp * 16 * M + m * 16;
#pragma unroll
    for (int r = 0; r < 2; r++) {
      float whole = quad_sum(sum[m][r]), seen = quad_max(any[m][r]);
      // Scores that are all -Inf have no probabilities; a row that sees no key has none to have.
      by[r] = whole != 0 ? 1 / whole : seen != 0 ? NAN : 0;
      i64 row = first + lane / 4 + r * 8;
      bool inside = a.c > 0 && row >= a.cu_q[0] && row < a.cu_q[a.c];
      if (row < a.t && lane % 4 == 0) a.lse[row * a.h + head] = !inside ? 0 : whole == 0 ? -INFINITY : fmaf(top[m][r], LF_LN2, logf(whole));
    }
    store_rows<T, W>(a.out, acc[m], by, first, a.t, a.h, head, a.e);
  }
}
LF_ATTENTION(attention_tc_64, attention_tc, 64, 32, 2)
LF_ATTENTION(attention_tc_128, attention_tc, 128, 48, 2)
LF_ATTENTION(attention_tc_256, attention_tc, 256, 32, 1)
LF_ATTENTION_LEAN(attention_tc_256_lean, attention_tc)

// How many numbers a head has of what each query has once, so that four lie on a multiple of 16 bytes.
LF_DEV i64 queries_in(const Attention& a) { return (a.t + 3) / 4 * 4; }

// By heads and queries: delta = do·o, and behind it log₂ of the sums of exponentials. A row and head is of 8, 16 or 32 lanes, as many as
// have an eighth, a sixteenth or a thirty-second of 64, 128 or 256 elements: eight each.
template <class T> LF_DEV void attention_delta_tc(const Attention& a) {
  int lanes = a.e <= 64 ? 8 : a.e <= 128 ? 16 : 32;
  i64 at = ((i64)blockIdx.x * blockDim.x + threadIdx.x) / lanes, c = threadIdx.x % lanes * 8, n = a.e - c;
  float s = 0;
  if (at < a.t * a.h && n > 0) {
    const T *dout = (const T*)a.dout + at * a.e + c, *o = (const T*)a.o + at * a.e + c;
    float x[8], y[8];
    load_eight(x, dout, on_sixteen((const T*)a.dout, a.e), n < 8 ? n : 8);
    load_eight(y, o, on_sixteen((const T*)a.o, a.e), n < 8 ? n : 8);
#pragma unroll
    for (int i = 0; i < 8; i++) s = fmaf(x[i], y[i], s);
  }
  for (int o = lanes / 2; o > 0; o >>= 1) s += __shfl_xor_sync(FULL, s, o);
  if (at < a.t * a.h && c == 0) {
    i64 to = at % a.h * queries_in(a) + at / a.h;
    a.delta_out[to] = s;
    a.delta_out[to + a.h * queries_in(a)] = a.lse_in[at] * LF_LOG2E;
  }
}
LF_HALF(attention_delta_tc, Attention, (attention_delta_tc<T>(a)))

// What a score's product becomes: its probability, and its gradient but for the scale.
template <bool special> LF_DEV void gradient_of(const Attention& a, float by_scale, float lse, float delta, float* product, float* dp) {
  float s = fmaf(*product, by_scale, -lse), slope = 1;
  if (special) s = capped((float)a.scale * *product, (float)a.cap, &slope) * LF_LOG2E - lse;
  *product = exp2_of(at_most_0(s));
  *dp = *product * (*dp - delta) * slope;
}

// Own rows are queries.
template <class T, int W, int N, int M, bool special> LF_DEV void attention_dq_tc(const Attention& a) {
  enum { S = Stages<W, N>::n };
  __shared__ Own<M> own;
  LF_SHARED(T, q);
  T *dout = q + 64 * M * (W + 8), *tiles = dout + 64 * M * (W + 8);
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  i64 head = blockIdx.y, group = head * a.g / a.h, row0 = (i64)(gridDim.x - 1 - blockIdx.x) * 64 * M;
  HeadRows<T> keys = rows_of<T>(a.k, a.s, a.g, group, a.d), values = rows_of<T>(a.v, a.s, a.g, group, a.e);
  own_of<true, M>(a, own, row0);
  Limits all = over_warps(own), some = own.of[warp];
  auto fetch = [&](i32 k0, int stage) {
    T* k = tiles + stage * 2 * N * (W + 8);
    if (k0 < all.to) {
      fetch_rows<T, W, N>(k, keys, k0);
      fetch_rows<T, W, N>(k + N * (W + 8), values, k0);
    }
    close_group();
  };
  fetch_rows<T, W, 64 * M>(q, rows_of<T>(a.q, a.t, a.h, head, a.d), (i32)row0);
  fetch_rows<T, W, 64 * M>(dout, rows_of<T>(a.dout, a.t, a.h, head, a.e), (i32)row0);
  fetch(all.from, 0);
  float acc[M][W / 8][4] = {}, lse[M][2], delta[M][2], by_scale = (float)a.scale * LF_LOG2E, by[2] = {(float)a.scale, (float)a.scale};
  i32 lo[M][2], hi[M][2];
#pragma unroll
  for (int m = 0; m < M; m++)
#pragma unroll
    for (int r = 0; r < 2; r++) {
      int at = warp * 16 * M + m * 16 + lane / 4 + r * 8;
      i64 row = row0 + at, once = head * queries_in(a) + row;
      lo[m][r] = own.from[at], hi[m][r] = own.to[at];
      delta[m][r] = row < a.t ? a.delta[once] : 0;
      lse[m][r] = row < a.t ? a.delta[once + a.h * queries_in(a)] : 0;
    }
  int stage = 0;
  for (i32 k0 = all.from; k0 < all.to; k0 += N, stage ^= S - 1) {
    if (S > 1) fetch(k0 + N, stage ^ 1);
    wait_groups<S - 1>();
    __syncthreads();
    const T *k = tiles + stage * 2 * N * (W + 8), *v = k + N * (W + 8);
    if (k0 < some.to && k0 + N > some.from) {
      float s[M][N / 8][4] = {}, dp[M][N / 8][4] = {};
      scores_of_tile<T, W, N, M>(s, q + warp * 16 * M * (W + 8), k);
      scores_of_tile<T, W, N, M>(dp, dout + warp * 16 * M * (W + 8), v);
      bool whole = !special && k0 >= some.all_from && k0 + N <= some.all_to;
#pragma unroll
      for (int m = 0; m < M; m++)
#pragma unroll
        for (int j = 0; j < N / 8; j++)
#pragma unroll
          for (int x = 0; x < 4; x++) {
            int r = x / 2;
            i32 key = k0 + j * 8 + lane % 4 * 2 + x % 2;
            gradient_of<special>(a, by_scale, lse[m][r], delta[m][r], &s[m][j][x], &dp[m][j][x]);
            bool see = whole || (key >= lo[m][r] && key < hi[m][r]);
            if (special && see) see = sees(a, row0 + warp * 16 * M + m * 16 + lane / 4 + r * 8, key);
            if (!see) dp[m][j][x] = 0;
          }
      add_tile<T, W, N, M>(acc, dp, k);
    }
    __syncthreads();
    if (S == 1) fetch(k0 + N, 0);
  }
#pragma unroll
  for (int m = 0; m < M; m++) store_rows<T, W>(a.dq, acc[m], by, row0 + warp * 16 * M + m * 16, a.t, a.h, head, a.d);
}
LF_ATTENTION(attention_dq_tc_64, attention_dq_tc, 64, 64, 2)
LF_ATTENTION(attention_dq_tc_128, attention_dq_tc, 128, 16, 2)
LF_ATTENTION(attention_dq_tc_256, attention_dq_tc, 256, 32, 1)
LF_ATTENTION_LEAN(attention_dq_tc_256_lean, attention_dq_tc)

// Own rows are keys, and scores lie by keys and queries; the query heads of a key head come in order. Heads of more than 128 take a launch
// for each of both gradients. What each query has once comes with its tile.
template <class T, int W, int N, int M, bool special, bool for_k = true, bool for_v = true> LF_DEV void attention_dkv_tc(const Attention& a) {
  enum { S = Stages<W, N>::n };
  __shared__ Own<M> own;
  LF_SHARED(T, k);
  T *v = k + 64 * M * (W + 8), *tiles = v + 64 * M * (W + 8);
  float* once = (float*)(tiles + 2 * S * N * (W + 8));
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  i64 group = blockIdx.y, row0 = (i64)blockIdx.x * 64 * M, heads = a.h / a.g;
  own_of<false, M>(a, own, row0);
  Limits all = over_warps(own), some = own.of[warp];
  int each = (all.to - all.from + N - 1) / N;
  auto fetch = [&](i64 head, i32 q0, int stage) {
    T* q = tiles + stage * 2 * N * (W + 8);
    if (head < (group + 1) * heads && each > 0) {
      fetch_rows<T, W, N>(q, rows_of<T>(a.q, a.t, a.h, head, a.d), q0);
      fetch_rows<T, W, N>(q + N * (W + 8), rows_of<T>(a.dout, a.t, a.h, head, a.e), q0);
      if (threadIdx.x < N / 2) {
        int part = threadIdx.x / (N / 4), at = threadIdx.x % (N / 4) * 4;
        copy_async(once + (stage * 2 + part) * N + at, a.delta + (part * a.h + head) * queries_in(a) + q0 + at);
      }
    }
    close_group();
  };
  fetch_rows<T, W, 64 * M>(k, rows_of<T>(a.k, a.s, a.g, group, a.d), (i32)row0);
  fetch_rows<T, W, 64 * M>(v, rows_of<T>(a.v, a.s, a.g, group, a.e), (i32)row0);
  float dk[M][for_k ? W / 8 : 1][4] = {}, dv[M][for_v ? W / 8 : 1][4] = {}, by_scale = (float)a.scale * LF_LOG2E;
  float one[2] = {1, 1}, by[2] = {(float)a.scale, (float)a.scale};
  i32 lo[M][2], hi[M][2];
#pragma unroll
  for (int m = 0; m < M; m++)
#pragma unroll
    for (int r = 0; r < 2; r++) {
      int at = warp * 16 * M + m * 16 + lane / 4 + r * 8;
      lo[m][r] = own.from[at], hi[m][r] = own.to[at];
    }
  i64 head = group * heads;
  i32 q0 = all.from;
  fetch(head, q0, 0);
  for (int n = 0, stage = 0; n < each * (int)heads; n++, stage ^= S - 1) {
    i64 next_head = q0 + N < all.to ? head : head + 1;
    i32 next_q0 = q0 + N < all.to ? q0 + N : all.from;
    if (S > 1) fetch(next_head, next_q0, stage ^ 1);
    wait_groups<S - 1>();
    __syncthreads();
    const T *q = tiles + stage * 2 * N * (W + 8), *dout = q + N * (W + 8);
    const float* each_once = once + stage * 2 * N;
    if (q0 < some.to && q0 + N > some.from) {
      float s[M][N / 8][4] = {}, dp[M][N / 8][4] = {};
      scores_of_tile<T, W, N, M>(s, k + warp * 16 * M * (W + 8), q);
      if (for_k) scores_of_tile<T, W, N, M>(dp, v + warp * 16 * M * (W + 8), dout);
      bool whole = !special && q0 >= some.all_from && q0 + N <= some.all_to;
#pragma unroll
      for (int j = 0; j < N / 8; j++)
#pragma unroll
        for (int y = 0; y < 2; y++) {
          int c = j * 8 + lane % 4 * 2 + y;
          float delta = each_once[c], lse = each_once[N + c];
          i32 row = q0 + c;
#pragma unroll
          for (int m = 0; m < M; m++)
#pragma unroll
            for (int r = 0; r < 2; r++) {
              float *p = &s[m][j][2 * r + y], *g = &dp[m][j][2 * r + y];
              gradient_of<special>(a, by_scale, lse, delta, p, g);
              bool see = whole || (row >= lo[m][r] && row < hi[m][r]);
              if (special && see) see = sees(a, row, row0 + warp * 16 * M + m * 16 + lane / 4 + r * 8);
              if (!see) *p = *g = 0;
            }
        }
      if constexpr (for_v) add_tile<T, W, N, M>(dv, s, dout);
      if constexpr (for_k) add_tile<T, W, N, M>(dk, dp, q);
    }
    __syncthreads();
    if (S == 1) fetch(next_head, next_q0, 0);
    head = next_head, q0 = next_q0;
  }
#pragma unroll
  for (int m = 0; m < M; m++) {
    i64 first = row0 + warp * 16 * M + m * 16;
    if constexpr (for_k) store_rows<T, W>(a.dk, dk[m], by, first, a.s, a.g, group, a.d);
    if constexpr (for_v) store_rows<T, W>(a.dv, dv[m], one, first, a.s, a.g, group, a.e);
  }
}
LF_ATTENTION(attention_dkv_tc_64, attention_dkv_tc, 64, 64, 1)
LF_ATTENTION(attention_dkv_tc_128, attention_dkv_tc, 128, 48, 1)
template <class T, int W, int N, int M, bool special> LF_DEV void attention_dk_tc(const Attention& a) {
  attention_dkv_tc<T, W, N, M, special, true, false>(a);
}
template <class T, int W, int N, int M, bool special> LF_DEV void attention_dv_tc(const Attention& a) {
  attention_dkv_tc<T, W, N, M, special, false, true>(a);
}
LF_ATTENTION(attention_dk_tc_256, attention_dk_tc, 256, 32, 1)
LF_ATTENTION(attention_dv_tc_256, attention_dv_tc, 256, 32, 1)
LF_ATTENTION_LEAN(attention_dk_tc_256_lean, attention_dk_tc)
LF_ATTENTION_LEAN(attention_dv_tc_256_lean, attention_dv_tc)
