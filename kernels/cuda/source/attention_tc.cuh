#pragma once
#include "attention.cuh"
#include "mma.cuh"

// Attention with operands of 16 bits, by tensor cores. A block of four warps owns 64·M rows of one head, 16·M a warp, and goes over the
// other side a tile of N rows at a time; while one tile is computed with, the next comes. W is the greatest width of a head; rows of shared
// memory are W + 8 elements, so that eight of them lie in different banks. Everything is added up in the order of tiles, by one block.
// With M = 2 a fragment that is read serves two products, as many as tensor cores do in the time of a read.
#define LF_LOG2E 1.4426950408889634f
#define LF_LN2 0.6931471805599453f

// 2^x, to two units in the last place.
LF_DEV float exp2_of(float x) {
#ifdef __CUDA_ARCH__
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#else
  return exp2f(x);
#endif
}

// Rows of one head of x [rows, heads, width]; whole where sixteen bytes can be copied at once.
template <class T> struct HeadRows {
  const T* at;
  i64 step;
  i32 rows, width;
  bool whole;
};
template <class T> LF_DEV HeadRows<T> rows_of(const void* x, i64 rows, i64 heads, i64 head, i64 width) {
  const T* at = (const T*)x + head * width;
  return {at, heads * width, (i32)rows, (i32)width, (u64)at % 16 == 0 && heads * width % 8 == 0 && width % 8 == 0};
}

// n rows from one on to shared memory; zeros behind the last row and the last column.
template <class T, int W, int n> LF_DEV void fetch_rows(T* to, const HeadRows<T>& x, i32 from) {
  const T* at = x.at + from * x.step;
#pragma unroll
  for (int e = threadIdx.x; e < n * (W / 8); e += 128) {
    int i = e / (W / 8), c = e % (W / 8) * 8;
    if (x.whole && from + i < x.rows && c < x.width) copy_async(to + i * (W + 8) + c, at + i * x.step + c);
    else fetch_eight(to + i * (W + 8) + c, at + i * x.step + c, from + i < x.rows ? x.width - c : 0);
  }
}

// What the rows of a warp need of the other side: some row anything from from to to, and every row all from all_from to all_to.
struct Limits {
  i32 from, to, all_from, all_to;
};
LF_DEV Limits joined(Limits x, Limits y) {
  return {x.from < y.from ? x.from : y.from, x.to > y.to ? x.to : y.to, x.all_from > y.all_from ? x.all_from : y.all_from,
          x.all_to < y.all_to ? x.all_to : y.all_to};
}

// What each own row needs, and each warp's.
template <int M> struct Own {
  i32 from[64 * M], to[64 * M];
  Limits of[4];
};
template <bool queries, int M> LF_DEV void own_of(const Attention& a, Own<M>& r, i64 row0) {
  int row = threadIdx.x / 32 * 16 * M + threadIdx.x % 32;
  Limits l = {0x7fffffff, 0, 0, 0x7fffffff};
  if (threadIdx.x % 32 < 16 * M) {
    Range one = queries ? keys_of(a, row0 + row) : queries_of(a, row0 + row);
    r.from[row] = (i32)one.from;
    r.to[row] = (i32)one.to;
    if (one.from < one.to) l = {(i32)one.from, (i32)one.to, (i32)one.from, (i32)one.to};
    else l = {0x7fffffff, 0, 0x7fffffff, 0};
  }
#pragma unroll
  for (int o = 16; o > 0; o >>= 1)
    l = joined(l, {__shfl_xor_sync(FULL, l.from, o), __shfl_xor_sync(FULL, l.to, o), __shfl_xor_sync(FULL, l.all_from, o),
                   __shfl_xor_sync(FULL, l.all_to, o)});
  if (threadIdx.x % 32 == 0) r.of[threadIdx.x / 32] = l;
  __syncthreads();
}
// Where a block begins, on a multiple of 16, and ends.
template <int M> LF_DEV Limits over_warps(const Own<M>& r) {
  Limits l = joined(joined(r.of[0], r.of[1]), joined(r.of[2], r.of[3]));
  if (l.from > l.to) l.from = l.to;
  l.from &= ~15;
  return l;
}

// s[m][16, N] += own[16, W]·other[N, W]ᵀ for the M sixteens of a warp's rows, both by rows in shared memory.
template <class T, int W, int N, int M> LF_DEV void scores_of_tile(float (*s)[N / 8][4], const T* own, const T* other) {
  int lane = threadIdx.x % 32;
  own += lane % 16 * (W + 8) + lane / 16 * 8;
  other += (lane / 16 * 8 + lane % 8) * (W + 8) + lane / 8 % 2 * 8;
#pragma unroll
  for (int k = 0; k < W / 16; k++) {
    u32 u[M][4], v[4];
#pragma unroll
    for (int m = 0; m < M; m++) load_matrices<false>(u[m], own + m * 16 * (W + 8) + k * 16);
#pragma unroll
    for (int j = 0; j < N / 16; j++) {
      load_matrices<false>(v, other + j * 16 * (W + 8) + k * 16);
#pragma unroll
      for (int m = 0; m < M; m++) {
        multiply(s[m][2 * j], u[m], v, T());
        multiply(s[m][2 * j + 1], u[m], v + 2, T());
      }
    }
  }
}

// acc[m][16, W] += p[m][16, N]·other[N, W]; p as scores lie, rounded to T.
template <class T, int W, int N, int M> LF_DEV void add_tile(float (*acc)[W / 8][4], const float (*p)[N / 8][4], const T* other) {
  int lane = threadIdx.x % 32;
  other += (lane % 8 + lane / 8 % 2 * 8) * (W + 8) + lane / 16 * 8;
#pragma unroll
  for (int j = 0; j < N / 16; j++) {
    u32 u[M][4], v[4];
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
      for (int x = 0; x < 4; x++) u[m][x] = pair_of<T>(p[m][2 * j + x / 2][x % 2 * 2], p[m][2 * j + x / 2][x % 2 * 2 + 1]);
#pragma unroll
    for (int n = 0; n < W / 16; n++) {
      load_matrices<true>(v, other + j * 16 * (W + 8) + n * 16);
#pragma unroll
      for (int m = 0; m < M; m++) {
        multiply(acc[m][2 * n], u[m], v, T());
        multiply(acc[m][2 * n + 1], u[m], v + 2, T());
      }
    }
  }
}

// Sixteen rows of a warp from row0 on to memory, each times by[row/8].
template <class T, int W>
LF_DEV void store_rows(void* y, const float (*acc)[4], const float* by, i64 row0, i64 rows, i64 heads, i64 head, i64 width) {
  int lane = threadIdx.x % 32, c = lane % 4 * 2;
  bool pairs = width % 2 == 0 && (u64)y % 4 == 0;
#pragma unroll
  for (int r = 0; r < 2; r++) {
    i64 row = row0 + lane / 4 + r * 8;
    if (row >= rows) continue;
    T* to = (T*)y + (row * heads + head) * width;
#pragma unroll
    for (int n = 0; n < W / 8; n++) {
      int j = n * 8 + c;
      float u = acc[n][2 * r] * by[r], v = acc[n][2 * r + 1] * by[r];
      if (pairs && j < width) *(u32*)(to + j) = pair_of<T>(u, v);
      else {
        if (j < width) narrow(to + j, u);
        if (j + 1 < width) narrow(to + j + 1, v);
      }
    }
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
