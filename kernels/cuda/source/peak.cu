#include "attention_tc.cuh"

// The greatest score of each head (kernels/ops_peak.go), of blocks of 64 or 16 queries, then of all; what is no number is greatest.
LF_DEV void peak_of_block(const Attention& a, float most) {
  __shared__ float part[4];
  for (int o = 16; o > 0; o >>= 1) most = most_of(most, __shfl_xor_sync(FULL, most, o));
  if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = most;
  __syncthreads();
  if (threadIdx.x == 0) a.delta_out[blockIdx.y * gridDim.x + blockIdx.x] = most_of(most_of(part[0], part[1]), most_of(part[2], part[3]));
}

template <class T, int W, int N> LF_DEV void peak_tc(const Attention& a) {
  __shared__ Own<1> own;
  LF_SHARED(T, q);
  T* tiles = q + 64 * (W + 8);
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  i64 head = blockIdx.y, group = head * a.g / a.h, row0 = (i64)(gridDim.x - 1 - blockIdx.x) * 64; // the longest first
  HeadRows<T> keys = rows_of<T>(a.k, a.s, a.g, group, a.d);
  own_of<true, 1>(a, own, row0);
  Limits all = over_warps(own), some = own.of[warp];
  auto fetch = [&](i32 k0, int stage) {
    if (k0 < all.to) fetch_rows<T, W, N>(tiles + stage * N * (W + 8), keys, k0);
    close_group();
  };
  fetch_rows<T, W, 64>(q, rows_of<T>(a.q, a.t, a.h, head, a.d), (i32)row0);
  fetch(all.from, 0);
  float most = 0;
  int stage = 0;
  for (i64 k0 = all.from; k0 < all.to; k0 += N, stage ^= 1) {
    fetch(k0 + N, stage ^ 1);
    wait_groups<1>();
    __syncthreads();
    if (k0 < some.to && k0 + N > some.from) {
      float s[1][N / 8][4] = {};
      scores_of_tile<T, W, N, 1>(s, q + warp * 16 * (W + 8), tiles + stage * N * (W + 8));
#pragma unroll
      for (int j = 0; j < N / 8; j++)
#pragma unroll
        for (int x = 0; x < 4; x++) {
          int at = warp * 16 + lane / 4 + x / 2 * 8;
          i32 key = (i32)k0 + j * 8 + lane % 4 * 2 + x % 2;
          if (key >= own.from[at] && key < own.to[at]) most = most_of(most, (float)a.scale * s[0][j][x]);
        }
    }
    __syncthreads(); // before this tile's place is fetched into
  }
  peak_of_block(a, most);
}
LF_HALF(attention_peak_64, Attention, (peak_tc<T, 64, 32>(a)))
LF_HALF(attention_peak_128, Attention, (peak_tc<T, 128, 32>(a)))
LF_HALF(attention_peak_256, Attention, (peak_tc<T, 256, 32>(a)))

LF_DEV void peak_float(const Attention& a) {
  LF_SHARED(float, q);
  i64 step = a.d + 1;
  float* k = q + kOwn * step;
  int lane = threadIdx.x % kLanes, own = threadIdx.x / kLanes;
  i64 head = blockIdx.y, group = head * a.g / a.h, row = (i64)blockIdx.x * kOwn + own;
  fetch<float>(q, step, a.q, (i64)blockIdx.x * kOwn, kOwn, a.t, a.h, head, a.d);
  Range r = keys_of(a, row), all = over_block(r);
  float most = 0;
  for (i64 k0 = all.from; k0 < all.to; k0 += kOther) {
    __syncthreads();
    fetch<float>(k, step, a.k, k0, kOther, a.s, a.g, group, a.d);
    __syncthreads();
    for (int j = lane; j < kOther; j += kLanes)
      if (k0 + j >= r.from && k0 + j < r.to) most = most_of(most, (float)a.scale * dot_of(q + own * step, k + j * step, a.d));
  }
  peak_of_block(a, most);
}
LF_ONE(attention_peak_f32, peak_float, Attention)

// A block for a head; chunks are its blocks, tile the first head.
LF_DEV void peak_total(const Attention& a) {
  float most = 0;
  LF_ROW(i, a.chunks) most = most_of(most, a.delta[blockIdx.x * a.chunks + i]);
  for (int o = 16; o > 0; o >>= 1) most = most_of(most, __shfl_xor_sync(FULL, most, o));
  if (threadIdx.x == 0) a.lse[a.tile + blockIdx.x] = most;
}
LF_ONE(attention_peak_all, peak_total, Attention)
