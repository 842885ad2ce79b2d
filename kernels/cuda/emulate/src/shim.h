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
enum { lf_place = 32 };

inline void __syncwarp() { lf_exchange("", 1); }

template <class T> inline T __shfl_xor_sync(unsigned, T v, int mask) {
  char* all = lf_exchange(&v, sizeof v);
  T r;
  memcpy(&r, all + ((threadIdx.x % 32) ^ mask) * lf_place, sizeof r);
  return r;
}

#define LF_SHARED(T, name) T* name = (T*)lf_shared_memory()
#define LF_ONE(name, body, Args)                                              \
  extern "C" void lf_kernel_##name(const void* a) { body(*(const Args*)a); } \
  extern "C" size_t lf_size_##name() { return sizeof(Args); }
