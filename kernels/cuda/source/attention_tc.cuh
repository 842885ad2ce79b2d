#pragma once
#include "attention.cuh"
#include "mma.cuh"

// Attention with operands of 16 bits, by tensor cores. A block of four warps owns 64 rows of one head, 16 a warp, and goes over the other
// side a tile at a time; while one tile is computed with, the next comes. W is the greatest width of a head; rows of shared memory are W + 8
// elements, so that eight of them lie in different banks. Everything is added up in the order of tiles, by one block.
enum { kRows = 64, kTile2 = 32 };

template <class T, int W>
LF_DEV void fetch_rows(T* to, const void* x, i64 from, int n, i64 rows, i64 heads, i64 head, i64 width) {
  for (int e = threadIdx.x; e < n * (W / 8); e += kRows * 2) {
    int i = e / (W / 8), c = e % (W / 8) * 8;
    fetch_eight(to + i * (W + 8) + c, (const T*)x + ((from + i) * heads + head) * width + c, from + i < rows ? width - c : 0);
  }
}

// The rows of the other side that each own row needs, and all of them together.
struct Ranges {
  i64 from[kRows], to[kRows];
};
template <bool queries> LF_DEV Range ranges_of(const Attention& a, Ranges& r, i64 row0) {
  if (threadIdx.x < kRows) {
    Range one = queries ? keys_of(a, row0 + threadIdx.x) : queries_of(a, row0 + threadIdx.x);
    r.from[threadIdx.x] = one.from;
    r.to[threadIdx.x] = one.to;
  }
  __syncthreads();
  Range all = {0, 0, false};
  for (int i = 0; i < kRows; i++) {
    if (r.from[i] >= r.to[i]) continue;
    all.from = !all.inside || r.from[i] < all.from ? r.from[i] : all.from;
    all.to = !all.inside || r.to[i] > all.to ? r.to[i] : all.to;
    all.inside = true;
  }
  return all;
}

// s[16, N] += own[16, W]·other[N, W]ᵀ of a warp, both by rows in shared memory; deep is how many sixteens of terms there are.
template <class T, int W, int N> LF_DEV void scores_of_tile(float (*s)[4], const T* own, const T* other, int deep) {
  int lane = threadIdx.x % 32;
#pragma unroll
  for (int k = 0; k < W / 16; k++) {
    if (k >= deep) continue;
    u32 u[4], v[4];
    load_matrices<false>(u, own + lane % 16 * (W + 8) + k * 16 + lane / 16 * 8);
#pragma unroll
    for (int j = 0; j < N / 16; j++) {
      load_matrices<false>(v, other + (j * 16 + lane / 16 * 8 + lane % 8) * (W + 8) + k * 16 + lane / 8 % 2 * 8);
      multiply(s[2 * j], u, v, T());
      multiply(s[2 * j + 1], u, v + 2, T());
    }
  }
}

// acc[16, W] += p[16, N]·other[N, W] of a warp; p as scores lie, rounded to T. wide is how many sixteens of columns there are.
template <class T, int W, int N> LF_DEV void add_tile(float (*acc)[4], const float (*p)[4], const T* other, int wide) {
  int lane = threadIdx.x % 32;
#pragma unroll
  for (int j = 0; j < N / 16; j++) {
    u32 u[4] = {pair_of<T>(p[2 * j][0], p[2 * j][1]), pair_of<T>(p[2 * j][2], p[2 * j][3]),
                pair_of<T>(p[2 * j + 1][0], p[2 * j + 1][1]), pair_of<T>(p[2 * j + 1][2], p[2 * j + 1][3])}, v[4];
#pragma unroll
    for (int n = 0; n < W / 16; n++) {
      if (n >= wide) continue;
      load_matrices<true>(v, other + (j * 16 + lane % 8 + lane / 8 % 2 * 8) * (W + 8) + n * 16 + lane / 16 * 8);
      multiply(acc[2 * n], u, v, T());
      multiply(acc[2 * n + 1], u, v + 2, T());
    }
  }
}

// A warp's sixteen rows from row0 on to memory, each times by[row/8].
template <class T, int W>
LF_DEV void store_rows(void* y, const float (*acc)[4], const float* by, i64 row0, i64 rows, i64 heads, i64 head, i64 width) {
  int lane = threadIdx.x % 32, c = lane % 4 * 2;
#pragma unroll
  for (int n = 0; n < W / 8; n++)
#pragma unroll
    for (int x = 0; x < 4; x++) {
      i64 row = row0 + lane / 4 + x / 2 * 8, j = n * 8 + c + x % 2;
      if (row < rows && j < width) st<T>(y, (row * heads + head) * width + j, acc[n][x] * by[x / 2]);
    }
}

// Over the four lanes of a row.
LF_DEV float quad_max(float v) {
  v = fmaxf(v, __shfl_xor_sync(FULL, v, 1));
  return fmaxf(v, __shfl_xor_sync(FULL, v, 2));
}
LF_DEV float quad_sum(float v) {
  v += __shfl_xor_sync(FULL, v, 1);
  return v + __shfl_xor_sync(FULL, v, 2);
}

#define LF_HALF(k, Args, body)                                              \
  template <class T> LF_DEV void k##_half(const Args& a) { body; }          \
  LF_ONE(k##_bf16, k##_half<bf16>, Args)                                    \
  LF_ONE(k##_f16, k##_half<f16>, Args)
