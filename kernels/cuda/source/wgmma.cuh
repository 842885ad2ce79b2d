#pragma once
#include "mma.cuh"

// Tensor cores of Hopper (sm_90a), which four warps ask for a product at once, of operands in shared memory, and wait for later. There an
// operand lies in panels: rows of 64 elements, 128 bytes, of which the 16-byte part c of row r is at c ^ r%8, so that eight rows of a part
// lie in different banks. By rows, a row of a panel has 64 terms of a row of the operand; turned, 64 rows of a term.
enum { kPanel = 64 };

// Where part c of row r is, in elements.
LF_DEV int in_panel(int r, int c) { return r * kPanel + (c ^ r % 8) * 8; }

#if defined(__CUDA_ARCH_FEAT_SM90_ALL) || defined(LF_HOST)
#define LF_HOPPER
#endif

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
// What names an operand to the tensor cores: its address, how far it is from 64 rows to the next 64 where it is turned, and 1024 bytes from
// eight rows of a panel to the next eight (PTX ISA, "Matrix descriptor"; panels of 128 bytes).
LF_DEV u64 operand_at(const void* x, int turned_step) {
  return (u64)(shared_address(x) >> 4 & 0x3fff) | (u64)(turned_step >> 4) << 16 | (u64)(1024 >> 4) << 32 | 1ull << 62;
}
// Results of a lane are 128 registers, operands 0 to 127 of the instruction.
#define LF_ASK(T, type)                                                                                                             \
template <bool turned_a, bool turned_b> LF_DEV void ask_product(float* c, u64 a, u64 b, T) {                                        \
  asm volatile("{.reg .pred p; setp.ne.b32 p, %130, 0;\n"                                                                           \
               "wgmma.mma_async.sync.aligned.m64n256k16.f32." type "." type " "                                                     \
               "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, "                   \
               "%21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, "                    \
               "%40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, "                    \
               "%59, %60, %61, %62, %63, %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, "                    \
               "%78, %79, %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, %96, "                    \
               "%97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, %112, %113, "                \
               "%114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127}, "                              \
               "%128, %129, p, 1, 1, %131, %132;}"                                                                                  \
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]), "+f"(c[4]), "+f"(c[5]), "+f"(c[6]), "+f"(c[7]),                    \
                 "+f"(c[8]), "+f"(c[9]), "+f"(c[10]), "+f"(c[11]), "+f"(c[12]), "+f"(c[13]), "+f"(c[14]),                           \
                 "+f"(c[15]), "+f"(c[16]), "+f"(c[17]), "+f"(c[18]), "+f"(c[19]), "+f"(c[20]), "+f"(c[21]),                         \
                 "+f"(c[22]), "+f"(c[23]), "+f"(c[24]), "+f"(c[25]), "+f"(c[26]), "+f"(c[27]), "+f"(c[28]),                         \
                 "+f"(c[29]), "+f"(c[30]), "+f"(c[31]), "+f"(c[32]), "+f"(c[33]), "+f"(c[34]), "+f"(c[35]),                         \
                 "+f"(c[36]), "+f"(c[37]), "+f"(c[38]), "+f"(c[39]), "+f"(c[40]), "+f"(c[41]), "+f"(c[42]),                         \
                 "+f"(c[43]), "+f"(c[44]), "+f"(c[45]), "+f"(c[46]), "+f"(c[47]), "+f"(c[48]), "+f"(c[49]),                         \
                 "+f"(c[50]), "+f"(c[51]), "+f"(c[52]), "+f"(c[53]), "+f"(c[54]), "+f"(c[55]), "+f"(c[56]),                         \
                 "+f"(c[57]), "+f"(c[58]), "+f"(c[59]), "+f"(c[60]), "+f"(c[61]), "+f"(c[62]), "+f"(c[63]),                         \
                 "+f"(c[64]), "+f"(c[65]), "+f"(c[66]), "+f"(c[67]), "+f"(c[68]), "+f"(c[69]), "+f"(c[70]),                         \
                 "+f"(c[71]), "+f"(c[72]), "+f"(c[73]), "+f"(c[74]), "+f"(c[75]), "+f"(c[76]), "+f"(c[77]),                         \
                 "+f"(c[78]), "+f"(c[79]), "+f"(c[80]), "+f"(c[81]), "+f"(c[82]), "+f"(c[83]), "+f"(c[84]),                         \
                 "+f"(c[85]), "+f"(c[86]), "+f"(c[87]), "+f"(c[88]), "+f"(c[89]), "+f"(c[90]), "+f"(c[91]),                         \
                 "+f"(c[92]), "+f"(c[93]), "+f"(c[94]), "+f"(c[95]), "+f"(c[96]), "+f"(c[97]), "+f"(c[98]),                         \
                 "+f"(c[99]), "+f"(c[100]), "+f"(c[101]), "+f"(c[102]), "+f"(c[103]), "+f"(c[104]), "+f"(c[105]),                   \
                 "+f"(c[106]), "+f"(c[107]), "+f"(c[108]), "+f"(c[109]), "+f"(c[110]), "+f"(c[111]), "+f"(c[112]),                  \
                 "+f"(c[113]), "+f"(c[114]), "+f"(c[115]), "+f"(c[116]), "+f"(c[117]), "+f"(c[118]), "+f"(c[119]),                  \
                 "+f"(c[120]), "+f"(c[121]), "+f"(c[122]), "+f"(c[123]), "+f"(c[124]), "+f"(c[125]), "+f"(c[126]),                  \
                 "+f"(c[127])                                                                                                       \
               : "l"(a), "l"(b), "r"(1), "n"(turned_a), "n"(turned_b));                                                             \
}
LF_ASK(bf16, "bf16")
LF_ASK(f16, "f16")
#endif

// c[64,256] += a[64,16]·b[256,16]ᵀ by four warps: sixteen terms from c0 on of panels of 64 terms. Of c a lane has the elements
// that mma.m16n8k16 gives it, of 32 of eight columns each; a begins at its row i0. Panels of a turned operand are step elements apart.
template <class T, bool turned_a, bool turned_b> LF_DEV void multiply_panels(float* c, const T* a, int i0, const T* b, int c0, int step) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  const T* from_a = turned_a ? a + i0 / 64 * step + c0 * kPanel : a + i0 * kPanel + c0;
  const T* from_b = turned_b ? b + c0 * kPanel : b + c0;
  ask_product<turned_a, turned_b>(c, operand_at(from_a, 2 * step), operand_at(from_b, 2 * step), T());
#elif defined(LF_HOST)
  int lane = threadIdx.x % 32, row = i0 + threadIdx.x % 128 / 32 * 16 + lane / 4;
  auto of = [&](const T* x, bool turned, int i, int k) {
    return widen(turned ? x[i / 64 * step + in_panel(k, i % 64 / 8) + i % 8] : x[in_panel(i, k / 8) + k % 8]);
  };
  for (int e = 0; e < 128; e++) {
    int i = row + e % 4 / 2 * 8, j = e / 4 * 8 + lane % 4 * 2 + e % 2;
    for (int k = c0; k < c0 + 16; k++) c[e] += of(a, turned_a, i, k) * of(b, turned_b, j, k);
  }
#endif
}

// Before the first product of a round: results are as they are to be.
LF_DEV void begin_products() {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#endif
}
// What this thread copied to shared memory the tensor cores see behind the next barrier.
LF_DEV void show_copies() {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}
LF_DEV void close_products() {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
#endif
}
// Waits for all rounds but the last so many.
template <int left> LF_DEV void wait_products() {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(left) : "memory");
#endif
}
// What waits for the last round waits before it reads results.
template <int n> LF_DEV void settle_products(float* c) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#pragma unroll
  for (int i = 0; i < n; i++) asm volatile("" : "+f"(c[i])::"memory");
#endif
}
