#include "lf.cuh"

// Products y[i,j] = Σ over c of a[i,c]·b[j,c], with a step from element to element along each axis: that is all three products of
// a linear layer. A block has 64 by 64 results; sums of 16 terms are added up in order of c, so that the bits of a result depend on
// nothing but its row of a and its row of b.
struct Product {
  const void *a, *b, *bias;
  void* y;
  const i32* off; // of groups, or null
  i64 m, n, k;
  i64 a_row, a_col, b_row, b_col, y_row;
  i64 groups, b_group, y_group; // steps from group to group
  i64 wide, add;                // y is float32; add into it
};

enum { kTile = 64, kDeep = 16 };

// Rows first.. of an operand's tile, terms c0.. of it, as elements of T; zeros behind the last row or term.
template <class T>
LF_DEV void fill_tile(T (*to)[kDeep + 8], const T* x, i64 first, i64 rows, i64 c0, i64 k1, i64 row_step, i64 col_step) {
  for (int e = threadIdx.x; e < kDeep * kTile; e += 256) {
    int i = col_step == 1 ? e / kDeep : e % kTile, c = col_step == 1 ? e % kDeep : e / kTile;
    if (first + i < rows && c0 + c < k1) to[i][c] = x[(first + i) * row_step + (c0 + c) * col_step];
    else narrow(&to[i][c], 0);
  }
}

// One result to memory.
template <class T> LF_DEV void put(const Product& p, char* y, i64 row, i64 rows, i64 col, float s) {
  if (row >= rows || col >= p.n) return;
  i64 at = row * p.y_row + col;
  if (p.bias) s += ld<T>(p.bias, col);
  if (!p.wide) st<T>(y, at, s);
  else ((float*)y)[at] = p.add ? ((float*)y)[at] + s : s;
}

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

// One block's results: rows m0 on, columns n0 on, of the terms k0 to k1. With 16-bit operands by tensor cores: a warp has 16 rows and 32
// columns.
template <class T>
LF_DEV void tile(const Product& p, const T* a, const T* b, char* y, i64 m0, i64 m1, i64 n0, i64 k0, i64 k1) {
  __shared__ T as[kTile][kDeep + 8], bs[kTile][kDeep + 8];
  int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, q = lane % 4 * 2, i0 = warp % 4 * 16, j0 = warp / 4 * 32;
  float acc[4][4] = {};
  for (i64 c0 = k0; c0 < k1; c0 += kDeep) {
    fill_tile(as, a, m0, m1, c0, k1, p.a_row, p.a_col);
    fill_tile(bs, b, n0, p.n, c0, k1, p.b_row, p.b_col);
    __syncthreads();
    u32 u[4] = {*(const u32*)&as[i0 + g][q], *(const u32*)&as[i0 + g + 8][q], *(const u32*)&as[i0 + g][q + 8],
                *(const u32*)&as[i0 + g + 8][q + 8]};
    for (int j = 0; j < 4; j++) {
      const T* row = bs[j0 + j * 8 + g];
      u32 v[2] = {*(const u32*)&row[q], *(const u32*)&row[q + 8]};
      multiply(acc[j], u, v, T());
    }
    __syncthreads();
  }
  for (int j = 0; j < 4; j++)
    for (int i = 0; i < 4; i++) put<T>(p, y, m0 + i0 + g + i / 2 * 8, m1, n0 + j0 + j * 8 + q + i % 2, acc[j][i]);
}

// With float32 operands a thread has 4 by 4 results.
template <>
LF_DEV void tile(const Product& p, const float* a, const float* b, char* y, i64 m0, i64 m1, i64 n0, i64 k0, i64 k1) {
  __shared__ float as[kTile][kDeep + 8], bs[kTile][kDeep + 8];
  int tx = threadIdx.x % 16, ty = threadIdx.x / 16;
  float acc[4][4] = {};
  for (i64 c0 = k0; c0 < k1; c0 += kDeep) {
    fill_tile(as, a, m0, m1, c0, k1, p.a_row, p.a_col);
    fill_tile(bs, b, n0, p.n, c0, k1, p.b_row, p.b_col);
    __syncthreads();
    float part[4][4] = {};
    for (int c = 0; c < kDeep; c++) {
      float u[4], v[4];
      for (int i = 0; i < 4; i++) u[i] = as[ty + 16 * i][c], v[i] = bs[tx + 16 * i][c];
      for (int i = 0; i < 4; i++)
        for (int j = 0; j < 4; j++) part[i][j] = fmaf(u[i], v[j], part[i][j]);
    }
    for (int i = 0; i < 4; i++)
      for (int j = 0; j < 4; j++) acc[i][j] += part[i][j];
    __syncthreads();
  }
  for (int i = 0; i < 4; i++)
    for (int j = 0; j < 4; j++) put<float>(p, y, m0 + ty + 16 * i, m1, n0 + tx + 16 * j, acc[i][j]);
}

template <class T> LF_DEV void product(const Product& p) {
  tile<T>(p, (const T*)p.a, (const T*)p.b, (char*)p.y, (i64)blockIdx.x * kTile, p.m, (i64)blockIdx.y * kTile, 0, p.k);
}
LF_TYPED(product, Product)

// Rows of a in groups, each with a b of its own: the grid has a block for every tile that there may be, m/64 and one a group.
template <class T> LF_DEV void product_rows(const Product& p) {
  i64 left = blockIdx.x, g = 0;
  for (; g < p.groups; g++) {
    i64 tiles = (p.off[g + 1] - p.off[g] + kTile - 1) / kTile;
    if (left < tiles) break;
    left -= tiles;
  }
  if (g == p.groups) return;
  tile<T>(p, (const T*)p.a, (const T*)p.b + g * p.b_group, (char*)p.y, p.off[g] + left * kTile, p.off[g + 1], (i64)blockIdx.y * kTile, 0, p.k);
}
LF_TYPED(product_rows, Product)

// Terms in groups, each with a y of its own: gradients of weights.
template <class T> LF_DEV void product_terms(const Product& p) {
  i64 g = blockIdx.z;
  char* y = (char*)p.y + g * p.y_group * sizeof(float);
  tile<T>(p, (const T*)p.a, (const T*)p.b, y, (i64)blockIdx.x * kTile, p.m, (i64)blockIdx.y * kTile, p.off[g], p.off[g + 1]);
}
LF_TYPED(product_terms, Product)
