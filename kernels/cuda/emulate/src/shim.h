// Lets a host compiler build the kernels: the threads of a block are fibers that switch at barriers and exchanges of a warp only. The
// order in which they run is a parameter, since a barrier that is missing gives other results in another order.
#pragma once
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#define __device__
#define __forceinline__ inline
#define __shared__ static thread_local
#define FULL 0xffffffffu

struct lf_index {
  unsigned x, y, z;
};
struct lf_thread {
  lf_index thread, block, size, grid;
};
extern thread_local lf_thread* lf_current;
#define threadIdx (lf_current->thread)
#define blockIdx (lf_current->block)
#define blockDim (lf_current->size)
#define gridDim (lf_current->grid)

void __syncthreads();
void* lf_shared_memory();
// Gives a value to the other lanes of the warp and returns the places of all 32, lf_place bytes apart.
char* lf_exchange(const void* value, size_t bytes);
enum { lf_place = 64 };

inline void __syncwarp() { lf_exchange("", 1); }

template <class T> inline T __shfl_xor_sync(unsigned, T v, int mask) {
  char* all = lf_exchange(&v, sizeof v);
  T r;
  memcpy(&r, all + ((threadIdx.x % 32) ^ mask) * lf_place, sizeof r);
  return r;
}

// mma.m16n8k16 as the PTX manual lays its fragments out: c[16,8] += a[16,16]·b[8,16]ᵀ over the lanes of a warp.
template <class F> inline void lf_multiply(float* c, const uint32_t* a, const uint32_t* b, F widen) {
  float mine[12]; // a's eight elements and b's four
  for (int i = 0; i < 8; i++) mine[i] = widen((uint16_t)(a[i / 2] >> i % 2 * 16));
  for (int i = 0; i < 4; i++) mine[8 + i] = widen((uint16_t)(b[i / 2] >> i % 2 * 16));
  const char* all = lf_exchange(mine, sizeof mine);
  int g = threadIdx.x % 32 / 4, q = threadIdx.x % 4 * 2;
  for (int i = 0; i < 4; i++) {
    int low = i / 2, col = q + i % 2; // rows g and g + 8
    float s = c[i];
    for (int k = 0; k < 16; k++) {
      const float* u = (const float*)(all + (g * 4 + k % 8 / 2) * lf_place);
      const float* v = (const float*)(all + (col * 4 + k % 8 / 2) * lf_place);
      s += u[(low + k / 8 * 2) * 2 + k % 2] * v[8 + k / 8 * 2 + k % 2];
    }
    c[i] = s;
  }
}

// ldmatrix: lane 8i+j names row j of matrix i.
inline void lf_load_matrices(uint32_t* r, const void* row, bool turned) {
  if ((uintptr_t)row % 16) abort(); // as the device would
  char* all = lf_exchange(&row, sizeof row);
  int lane = threadIdx.x % 32;
  auto at = [&](int i, int j, int c) {
    const uint16_t* p;
    memcpy(&p, all + (i * 8 + j) * lf_place, sizeof p);
    return (uint32_t)p[c];
  };
  for (int i = 0; i < 4; i++) {
    int x = lane / 4, y = lane % 4 * 2;
    r[i] = turned ? at(i, y, x) | at(i, y + 1, x) << 16 : at(i, x, y) | at(i, x, y + 1) << 16;
  }
}

// cp.async: what was copied is there when it is waited for, not before.
void lf_copy_async(void* to, const void* from);
void lf_close_group();
void lf_wait_groups(int left);

#define LF_SHARED(T, name) T* name = (T*)lf_shared_memory()
#define LF_BLOCK(name, body, Args, threads) LF_ONE(name, body, Args)
#define LF_ONE(name, body, Args)                                              \
  extern "C" void lf_kernel_##name(const void* a) { body(*(const Args*)a); } \
  extern "C" size_t lf_size_##name() { return sizeof(Args); }
