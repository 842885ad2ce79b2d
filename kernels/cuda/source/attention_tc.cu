#include "attention_tc.cuh"

// N are the keys of a tile.
template <class T, int W, int N> LF_DEV void attention_tc(const Attention& a) {
  __shared__ Ranges own;
  LF_SHARED(T, q);
  T* tiles = q + kRows * (W + 8);
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32, deep = (int)(a.d + 15) / 16, wide = (int)(a.e + 15) / 16;
  i64 head = blockIdx.y, group = head * a.g / a.h, row0 = (i64)blockIdx.x * kRows, mine = row0 + warp * 16 + lane / 4;
  Range all = ranges_of<true>(a, own, row0);
  auto fetch = [&](i64 k0, i64 n) {
    T* k = tiles + n % 2 * 2 * N * (W + 8);
    if (k0 < all.to) {
      fetch_rows<T, W>(k, a.k, k0, N, a.s, a.g, group, a.d);
      fetch_rows<T, W>(k + N * (W + 8), a.v, k0, N, a.s, a.g, group, a.e);
    }
    close_group();
  };
  fetch_rows<T, W>(q, a.q, row0, kRows, a.t, a.h, head, a.d);
  fetch(all.from, 0);
  float acc[W / 8][4] = {}, top[2] = {-INFINITY, -INFINITY}, sum[2] = {}, any[2] = {}, slope;
  for (i64 k0 = all.from, n = 0; k0 < all.to; k0 += N, n++) {
    fetch(k0 + N, n + 1);
    wait_groups<1>();
    __syncthreads();
    const T *k = tiles + n % 2 * 2 * N * (W + 8), *v = k + N * (W + 8);
    float s[N / 8][4] = {}, most[2] = {top[0], top[1]};
    u32 seen = 0;
    scores_of_tile<T, W, N>(s, q + warp * 16 * (W + 8), k, deep);
#pragma unroll
    for (int j = 0; j < N / 8; j++)
#pragma unroll
      for (int x = 0; x < 4; x++) {
        int r = x / 2, at = warp * 16 + lane / 4 + r * 8;
        i64 key = k0 + j * 8 + lane % 4 * 2 + x % 2;
        bool see = key >= own.from[at] && key < own.to[at] && sees(a, mine + r * 8, key);
        s[j][x] = see ? capped((float)a.scale * s[j][x], (float)a.cap, &slope) : -INFINITY;
        most[r] = fmaxf(most[r], s[j][x]);
        seen |= (u32)see << (j * 4 + x);
        if (see) any[r] = 1;
      }
    float base[2], keep[2];
#pragma unroll
    for (int r = 0; r < 2; r++) {
      most[r] = quad_max(most[r]);
      base[r] = most[r] == -INFINITY ? 0 : most[r];
      keep[r] = expf(top[r] - base[r]);
      top[r] = most[r];
      sum[r] *= keep[r];
    }
#pragma unroll
    for (int j = 0; j < N / 8; j++)
#pragma unroll
      for (int x = 0; x < 4; x++) {
        s[j][x] = seen >> (j * 4 + x) & 1 ? expf(s[j][x] - base[x / 2]) : 0;
        sum[x / 2] += s[j][x];
      }
#pragma unroll
    for (int i = 0; i < W / 8; i++)
#pragma unroll
      for (int x = 0; x < 4; x++) acc[i][x] *= keep[x / 2];
    add_tile<T, W, N>(acc, s, v, wide);
    __syncthreads(); // before this tile's place is fetched into
  }
  float by[2];
#pragma unroll
  for (int r = 0; r < 2; r++) {
    sum[r] = quad_sum(sum[r]);
    any[r] = quad_max(any[r]);
    // Scores that are all -Inf have no probabilities; a row that sees no key has none to have.
    by[r] = sum[r] != 0 ? 1 / sum[r] : any[r] != 0 ? NAN : 0;
    i64 row = mine + r * 8;
    bool inside = a.c > 0 && row >= a.cu_q[0] && row < a.cu_q[a.c];
    if (row < a.t && lane % 4 == 0) a.lse[row * a.h + head] = !inside ? 0 : sum[r] == 0 ? -INFINITY : top[r] + logf(sum[r]);
  }
  store_rows<T, W>(a.out, acc, by, row0 + warp * 16, a.t, a.h, head, a.e);
}
LF_HALF(attention_tc_64, Attention, (attention_tc<T, 64, 64>(a)))
LF_HALF(attention_tc_128, Attention, (attention_tc<T, 128, 64>(a)))
LF_HALF(attention_tc_256, Attention, (attention_tc<T, 256, 32>(a)))

// Own rows are queries.
template <class T, int W> LF_DEV void attention_dq_tc(const Attention& a) {
  __shared__ Ranges own;
  LF_SHARED(T, q);
  T *dout = q + kRows * (W + 8), *tiles = dout + kRows * (W + 8);
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32, deep = (int)(a.d + 15) / 16, wide = (int)(a.e + 15) / 16;
  i64 head = blockIdx.y, group = head * a.g / a.h, row0 = (i64)blockIdx.x * kRows, mine = row0 + warp * 16 + lane / 4;
  Range all = ranges_of<true>(a, own, row0);
  auto fetch = [&](i64 k0, i64 n) {
    T* k = tiles + n % 2 * 2 * kTile2 * (W + 8);
    if (k0 < all.to) {
      fetch_rows<T, W>(k, a.k, k0, kTile2, a.s, a.g, group, a.d);
      fetch_rows<T, W>(k + kTile2 * (W + 8), a.v, k0, kTile2, a.s, a.g, group, a.e);
    }
    close_group();
  };
  fetch_rows<T, W>(q, a.q, row0, kRows, a.t, a.h, head, a.d);
  fetch_rows<T, W>(dout, a.dout, row0, kRows, a.t, a.h, head, a.e);
  fetch(all.from, 0);
  float acc[W / 8][4] = {}, lse[2], delta[2], one[2] = {1, 1}, p;
  for (int r = 0; r < 2; r++) {
    i64 row = mine + r * 8;
    lse[r] = row < a.t ? a.lse_in[row * a.h + head] : 0;
    delta[r] = row < a.t ? a.delta[row * a.h + head] : 0;
  }
  for (i64 k0 = all.from, n = 0; k0 < all.to; k0 += kTile2, n++) {
    fetch(k0 + kTile2, n + 1);
    wait_groups<1>();
    __syncthreads();
    const T *k = tiles + n % 2 * 2 * kTile2 * (W + 8), *v = k + kTile2 * (W + 8);
    float s[kTile2 / 8][4] = {}, dp[kTile2 / 8][4] = {};
    scores_of_tile<T, W, kTile2>(s, q + warp * 16 * (W + 8), k, deep);
    scores_of_tile<T, W, kTile2>(dp, dout + warp * 16 * (W + 8), v, wide);
#pragma unroll
    for (int j = 0; j < kTile2 / 8; j++)
#pragma unroll
      for (int x = 0; x < 4; x++) {
        int r = x / 2, at = warp * 16 + lane / 4 + r * 8;
        i64 key = k0 + j * 8 + lane % 4 * 2 + x % 2;
        bool see = key >= own.from[at] && key < own.to[at] && sees(a, mine + r * 8, key);
        s[j][x] = see ? score_bwd(a, s[j][x], dp[j][x], lse[r], delta[r], &p) : 0;
      }
    add_tile<T, W, kTile2>(acc, s, k, deep);
    __syncthreads();
  }
  store_rows<T, W>(a.dq, acc, one, row0 + warp * 16, a.t, a.h, head, a.d);
}
LF_HALF(attention_dq_tc_64, Attention, (attention_dq_tc<T, 64>(a)))
LF_HALF(attention_dq_tc_128, Attention, (attention_dq_tc<T, 128>(a)))
LF_HALF(attention_dq_tc_256, Attention, (attention_dq_tc<T, 256>(a)))

// Own rows are keys, and scores lie by keys and queries; the query heads of a key head come in order. Heads of more than 128 take a launch
// for each of both gradients.
template <class T, int W, bool for_k, bool for_v> LF_DEV void attention_dkv_tc(const Attention& a) {
  __shared__ Ranges own;
  LF_SHARED(T, k);
  T *v = k + kRows * (W + 8), *tiles = v + kRows * (W + 8);
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32, deep = (int)(a.d + 15) / 16, wide = (int)(a.e + 15) / 16;
  i64 group = blockIdx.y, row0 = (i64)blockIdx.x * kRows, mine = row0 + warp * 16 + lane / 4, heads = a.h / a.g;
  Range all = ranges_of<false>(a, own, row0);
  i64 each = (all.to - all.from + kTile2 - 1) / kTile2, tiles_of_all = each * heads;
  auto fetch = [&](i64 n) {
    T* q = tiles + n % 2 * 2 * kTile2 * (W + 8);
    if (n < tiles_of_all) {
      i64 head = group * heads + n / each, q0 = all.from + n % each * kTile2;
      fetch_rows<T, W>(q, a.q, q0, kTile2, a.t, a.h, head, a.d);
      fetch_rows<T, W>(q + kTile2 * (W + 8), a.dout, q0, kTile2, a.t, a.h, head, a.e);
    }
    close_group();
  };
  fetch_rows<T, W>(k, a.k, row0, kRows, a.s, a.g, group, a.d);
  fetch_rows<T, W>(v, a.v, row0, kRows, a.s, a.g, group, a.e);
  fetch(0);
  float dk[for_k ? W / 8 : 1][4] = {}, dv[for_v ? W / 8 : 1][4] = {}, one[2] = {1, 1};
  for (i64 n = 0; n < tiles_of_all; n++) {
    fetch(n + 1);
    wait_groups<1>();
    __syncthreads();
    const T *q = tiles + n % 2 * 2 * kTile2 * (W + 8), *dout = q + kTile2 * (W + 8);
    i64 head = group * heads + n / each, q0 = all.from + n % each * kTile2;
    float s[kTile2 / 8][4] = {}, dp[kTile2 / 8][4] = {};
    scores_of_tile<T, W, kTile2>(s, k + warp * 16 * (W + 8), q, deep);
    if (for_k) scores_of_tile<T, W, kTile2>(dp, v + warp * 16 * (W + 8), dout, wide);
#pragma unroll
    for (int j = 0; j < kTile2 / 8; j++)
#pragma unroll
      for (int x = 0; x < 4; x++) {
        int r = x / 2, at = warp * 16 + lane / 4 + r * 8;
        i64 row = q0 + j * 8 + lane % 4 * 2 + x % 2;
        float g = 0, p = 0;
        if (row >= own.from[at] && row < own.to[at] && sees(a, row, mine + r * 8)) {
          g = score_bwd(a, s[j][x], dp[j][x], a.lse_in[row * a.h + head], a.delta[row * a.h + head], &p);
        }
        s[j][x] = p;
        dp[j][x] = g;
      }
    if (for_v) add_tile<T, W, kTile2>(dv, s, dout, wide);
    if (for_k) add_tile<T, W, kTile2>(dk, dp, q, deep);
    __syncthreads();
  }
  if (for_k) store_rows<T, W>(a.dk, dk, one, row0 + warp * 16, a.s, a.g, group, a.d);
  if (for_v) store_rows<T, W>(a.dv, dv, one, row0 + warp * 16, a.s, a.g, group, a.e);
}
LF_HALF(attention_dkv_tc_64, Attention, (attention_dkv_tc<T, 64, true, true>(a)))
LF_HALF(attention_dkv_tc_128, Attention, (attention_dkv_tc<T, 128, true, true>(a)))
LF_HALF(attention_dk_tc_256, Attention, (attention_dkv_tc<T, 256, true, false>(a)))
LF_HALF(attention_dv_tc_256, Attention, (attention_dkv_tc<T, 256, false, true>(a)))
