// One source for two compilers: nvcc, and a host C++ compiler with emulate/src/shim.h (-DLF_HOST).
//
// Every kernel takes one struct of 8-byte fields by value, so that whoever launches it passes a list of words. What a kernel sums, it
// sums in an order that follows from shapes alone: not from where operands lie, nor from how many multiprocessors there are. There are
// no atomic additions of floating-point numbers. Products that are to be fused with a sum say fmaf: compile with -fmad=false.
#pragma once
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef int i32;
typedef long long i64;

#ifdef LF_HOST
#include "shim.h"
#else
#define LF_ONE(name, body, Args) \
  extern "C" __global__ void name(const Args a) { body(a); }
// With at most so many threads a block, which may then have more registers each.
#define LF_BLOCK(name, body, Args, threads) \
  extern "C" __global__ void __launch_bounds__(threads) name(const Args a) { body(a); }
// Memory of the block whose size the launch says.
#define LF_SHARED(T, name)                        \
  extern __shared__ __align__(16) u8 lf_shared[]; \
  T* name = (T*)lf_shared
#define FULL 0xffffffffu
#endif

#define LF_DEV __device__ __forceinline__

struct bf16 { u16 b; };
struct f16 { u16 b; };

#define LF_TYPED(k, Args)               \
  LF_ONE(k##_f32, k<float>, Args)       \
  LF_ONE(k##_bf16, k<bf16>, Args)       \
  LF_ONE(k##_f16, k<f16>, Args)

#define LF_MOST_F32 3.40282346638528859811704183484516925e38f

LF_DEV u32 bits_of(float f) {
#ifdef __CUDA_ARCH__
  return __float_as_uint(f);
#else
  u32 u;
  __builtin_memcpy(&u, &f, 4);
  return u;
#endif
}
LF_DEV float of_bits(u32 u) {
#ifdef __CUDA_ARCH__
  return __uint_as_float(u);
#else
  float f;
  __builtin_memcpy(&f, &u, 4);
  return f;
#endif
}

LF_DEV int bits_set(u32 u) {
#ifdef __CUDA_ARCH__
  return __popc(u);
#else
  return __builtin_popcount(u);
#endif
}

LF_DEV float widen(float x) { return x; }
LF_DEV float widen(bf16 x) { return of_bits((u32)x.b << 16); }
LF_DEV float widen(f16 x) {
#ifdef __CUDA_ARCH__
  float f;
  asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(x.b));
  return f;
#else
  u32 sign = (u32)(x.b & 0x8000) << 16, e = x.b >> 10 & 31, m = x.b & 0x3ff;
  if (e == 31) return of_bits(sign | 0x7f800000u | m << 13);
  if (e == 0) return of_bits(sign | bits_of((float)m * 0x1p-24f));
  return of_bits(sign | (e + 112) << 23 | m << 13);
#endif
}

// To nearest even; not-a-number stays one.
LF_DEV void narrow(float* y, float f) { *y = f; }
LF_DEV void narrow(bf16* y, float f) {
#ifdef __CUDA_ARCH__
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y->b) : "f"(f));
  return;
#endif
  u32 u = bits_of(f);
  y->b = f != f ? (u16)(u >> 16 | 0x40) : (u16)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}
LF_DEV void narrow(f16* y, float f) {
#ifdef __CUDA_ARCH__
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y->b) : "f"(f));
#else
  u32 u = bits_of(f);
  u16 sign = u >> 16 & 0x8000;
  u &= 0x7fffffff;
  if (u > 0x7f800000u) y->b = sign | 0x7e00 | (u >> 13 & 0x3ff);
  else if (u >= 0x477ff000u) y->b = sign | 0x7c00;
  else if (u < 0x38800000u) y->b = sign | (u16)(bits_of(of_bits(u) + 0.5f) - 0x3f000000u);
  else y->b = sign | (u16)((u - 0x38000000u + 0xfff + (u >> 13 & 1)) >> 13);
#endif
}
// A float64 to float32 so that a further rounding rounds once: to odd.
LF_DEV float round_odd(double x) {
  float r = (float)x;
  if ((double)r == x || x != x) return r;
  u32 u = bits_of(r);
  if (fabs((double)r) > fabs(x)) u--;
  return of_bits(u | 1);
}

#ifdef __CUDA_ARCH__
LF_DEV u32 pair_at_once(float x, float y, bf16) {
  u32 u;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(u) : "f"(y), "f"(x));
  return u;
}
LF_DEV u32 pair_at_once(float x, float y, f16) {
  u32 u;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(u) : "f"(y), "f"(x));
  return u;
}
#endif

// Two numbers as two elements side by side.
template <class T> LF_DEV u32 pair_of(float x, float y) {
#ifdef __CUDA_ARCH__
  return pair_at_once(x, y, T());
#endif
  T u, v;
  narrow(&u, x);
  narrow(&v, y);
  return u.b | (u32)v.b << 16;
}

// Eight elements side by side. Where they lie on a multiple of 16 bytes, which whoever calls has found out, they are read and written in one
// access or two; else one by one, which gives the same. Of n < 8 those behind are zeros, and are not written.
struct alignas(16) Sixteen {
  u32 w[4];
};
LF_DEV void open_pair(float* f, u32 w, bf16) { f[0] = of_bits(w << 16), f[1] = of_bits(w & 0xffff0000u); }
LF_DEV void open_pair(float* f, u32 w, f16) { f[0] = widen(f16{(u16)w}), f[1] = widen(f16{(u16)(w >> 16)}); }
template <class T> LF_DEV void load_eight(float* f, const T* p, bool whole, int n = 8) {
  if (!whole || n < 8) {
#pragma unroll
    for (int c = 0; c < 8; c++) f[c] = c < n ? widen(p[c]) : 0;
    return;
  }
  Sixteen s = *(const Sixteen*)p;
#pragma unroll
  for (int c = 0; c < 4; c++) open_pair(f + 2 * c, s.w[c], T());
}
template <> LF_DEV void load_eight(float* f, const float* p, bool whole, int n) {
  if (!whole || n < 8) {
#pragma unroll
    for (int c = 0; c < 8; c++) f[c] = c < n ? p[c] : 0;
    return;
  }
#pragma unroll
  for (int h = 0; h < 2; h++) {
    Sixteen s = ((const Sixteen*)p)[h];
#pragma unroll
    for (int c = 0; c < 4; c++) f[4 * h + c] = of_bits(s.w[c]);
  }
}
template <class T> LF_DEV void store_eight(T* p, const float* f, bool whole, int n = 8) {
  if (!whole || n < 8) {
#pragma unroll
    for (int c = 0; c < 8; c++)
      if (c < n) narrow(p + c, f[c]);
    return;
  }
  Sixteen s;
#pragma unroll
  for (int c = 0; c < 4; c++) s.w[c] = pair_of<T>(f[2 * c], f[2 * c + 1]);
  *(Sixteen*)p = s;
}
template <> LF_DEV void store_eight(float* p, const float* f, bool whole, int n) {
  if (!whole || n < 8) {
#pragma unroll
    for (int c = 0; c < 8; c++)
      if (c < n) p[c] = f[c];
    return;
  }
#pragma unroll
  for (int h = 0; h < 2; h++) {
    Sixteen s;
#pragma unroll
    for (int c = 0; c < 4; c++) s.w[c] = bits_of(f[4 * h + c]);
    ((Sixteen*)p)[h] = s;
  }
}
// Whether rows of eights lie on multiples of 16 bytes: their first address, and the elements from row to row.
template <class T> LF_DEV bool on_sixteen(const T* p, i64 step) { return (u64)p % 16 == 0 && step * sizeof(T) % 16 == 0; }

template <class T> LF_DEV float ld(const void* p, i64 i) { return widen(((const T*)p)[i]); }
template <class T> LF_DEV void st(void* p, i64 i, float v) { narrow((T*)p + i, v); }

// Codes of dtypes, where a kernel is not made for each: as in kernels/tensor.
enum { kF32, kBF16, kF16, kF64 };
LF_DEV double ld_any(const void* p, i64 i, i64 type) {
  switch (type) {
  case kF32: return ((const float*)p)[i];
  case kBF16: return ld<bf16>(p, i);
  case kF16: return ld<f16>(p, i);
  }
  return ((const double*)p)[i];
}
LF_DEV void st_any(void* p, i64 i, double v, i64 type) {
  switch (type) {
  case kF32: ((float*)p)[i] = (float)v; break;
  case kBF16: st<bf16>(p, i, round_odd(v)); break;
  case kF16: st<f16>(p, i, round_odd(v)); break;
  default: ((double*)p)[i] = v;
  }
}

// The elements of a thread: all blocks of the grid go over n together.
#define LF_EACH(i, n) \
  for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i < (n); i += (i64)gridDim.x * blockDim.x)
// The eights of a row of a thread of the block that has the row, n elements each: i is the first of them.
#define LF_ROW_EIGHTS(i, n, d) \
  for (i64 i = (i64)threadIdx.x * 8, n = (d) - i < 8 ? (d) - i : 8; i < (d); i += (i64)blockDim.x * 8, n = (d) - i < 8 ? (d) - i : 8)
// The elements of a row of a thread of the block that has the row.
#define LF_ROW(i, d) for (i64 i = threadIdx.x; i < (d); i += blockDim.x)

template <class T> LF_DEV T warp_sum(T v) { // a fixed butterfly
  for (int o = 16; o > 0; o >>= 1) v += __shfl_xor_sync(FULL, v, o);
  return v;
}

// The sum over a block of whole warps; every thread has it.
template <class T> LF_DEV T block_sum(T v) {
  __shared__ T part[32];
  v = warp_sum(v);
  __syncthreads(); // an earlier sum has been read
  if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = v;
  __syncthreads();
  T s = 0;
  for (u32 i = 0; i < blockDim.x / 32; i++) s += part[i];
  return s;
}

// The greatest over a block; what is not a number does not count.
LF_DEV float block_max(float v) {
  __shared__ float part[32];
  for (int o = 16; o > 0; o >>= 1) v = fmaxf(v, __shfl_xor_sync(FULL, v, o));
  __syncthreads();
  if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = v;
  __syncthreads();
  v = part[0];
  for (u32 i = 1; i < blockDim.x / 32; i++) v = fmaxf(v, part[i]);
  return v;
}

// The greater, and what is no number where one is none.
template <class F> LF_DEV F most_of(F x, F y) { return x != x || y != y ? NAN : x > y ? x : y; }

LF_DEV i64 clamp(i64 x, i64 lo, i64 hi) { return x < lo ? lo : x > hi ? hi : x; }
LF_DEV float sigmoid(float x) { return 1 / (1 + expf(-x)); }
LF_DEV double sigmoid(double x) { return 1 / (1 + exp(-x)); }

// A soft cap: x and, in slope, the derivative; most = 0 is none.
// A logarithm of a share, which a rounded lse may have put above 0: by a lot where scores are large. A NaN stays one.
LF_DEV float at_most_0(float x) { return x > 0 ? 0 : x; }

LF_DEV float capped(float x, float most, float* slope) {
  *slope = 1;
  if (most == 0) return x;
  float t = tanhf(x / most);
  *slope = 1 - t * t;
  return most * t;
}

// SplitMix64, as kernels' dropout says.
#define LF_GOLDEN 0x9E3779B97F4A7C15ull
LF_DEV u64 mix64(u64 z) {
  z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ z >> 27) * 0x94D049BB133111EBull;
  return z ^ z >> 31;
}
LF_DEV double uniform(u64 key, i64 draw, i64 element) {
  u64 seed = mix64(key + ((u64)draw + 1) * LF_GOLDEN);
  return (double)(mix64(seed + (u64)element * LF_GOLDEN) >> 40) * 0x1p-24;
}

// kernels.NoiseAt.
LF_DEV u32 noise_at(u32 seed, u64 place) {
  u32 u = seed ^ (u32)place * 0x9e3779b1u;
  u ^= u >> 16;
  u *= 0x85ebca6bu;
  u ^= u >> 13;
  u *= 0xc2b2ae35u;
  return u ^ u >> 16;
}

// The last sequence that begins at or before row, of cu[c+1].
LF_DEV i64 sequence_of(const i32* cu, i64 c, i64 row) {
  i64 lo = 0, hi = c; // cu[lo] <= row, or there is none
  while (lo + 1 < hi) {
    i64 mid = (lo + hi) / 2;
    if (cu[mid] <= row) lo = mid;
    else hi = mid;
  }
  return lo;
}
