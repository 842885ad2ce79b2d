#pragma once
#include "lf.cuh"

// Tensor cores, and copies to shared memory that are waited for later.

// c[16,8] += a[16,16]·b[8,16]ᵀ by a warp: of each matrix a lane has the elements that mma.m16n8k16 gives it.
LF_DEV void multiply(float* c, const u32* a, const u32* b, bf16) {
#ifdef __CUDA_ARCH__
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#elif defined(LF_HOST)
  lf_multiply(c, a, b, [](u16 x) { return widen(bf16{x}); });
#endif
}
LF_DEV void multiply(float* c, const u32* a, const u32* b, f16) {
#ifdef __CUDA_ARCH__
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#elif defined(LF_HOST)
  lf_multiply(c, a, b, [](u16 x) { return widen(f16{x}); });
#endif
}

#ifdef __CUDA_ARCH__
LF_DEV u32 shared_address(const void* p) { return (u32)__cvta_generic_to_shared(p); }
#endif

// Four matrices of 8 by 8 elements of 16 bits from shared memory: lane 8i+j names row j of matrix i, 16 bytes on a multiple of 16. Of each
// a lane gets two elements side by side: row lane/4, columns from 2·(lane%4), or turned, of columns and rows.
template <bool turned> LF_DEV void load_matrices(u32* r, const void* row) {
#ifdef __CUDA_ARCH__
  if (turned)
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(shared_address(row)) : "memory");
  else
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(shared_address(row)) : "memory");
#elif defined(LF_HOST)
  lf_load_matrices(r, row, turned);
#endif
}

// 16 bytes from global to shared memory, both on multiples of 16; there when its group has been waited for and a barrier passed.
LF_DEV void copy_async(void* to, const void* from) {
#ifdef __CUDA_ARCH__
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(to)), "l"(from) : "memory");
#elif defined(LF_HOST)
  lf_copy_async(to, from);
#endif
}
LF_DEV void close_group() {
#ifdef __CUDA_ARCH__
  asm volatile("cp.async.commit_group;" ::: "memory");
#elif defined(LF_HOST)
  lf_close_group();
#endif
}
// Waits for all of this thread's groups but the last so many.
template <int left> LF_DEV void wait_groups() {
#ifdef __CUDA_ARCH__
  asm volatile("cp.async.wait_group %0;" ::"n"(left) : "memory");
#elif defined(LF_HOST)
  lf_wait_groups(left);
#endif
}

// Eight elements to shared memory, of which left are there and the others are zeros.
template <class T> LF_DEV void fetch_eight(T* to, const T* from, i64 left) {
  if (left >= 8 && (u64)from % 16 == 0) return copy_async(to, from);
  for (int c = 0; c < 8; c++) {
    if (c < left) to[c] = from[c];
    else narrow(to + c, 0);
  }
}
