#include "lf.cuh"

// Products y[i,j] = Σ over c of a[i,c]·b[j,c], with a step from element to element along each axis: that is all three products of
// a linear layer. A block has 64 by 64 results, a thread 4 by 4; sums of 16 terms are added up in order of c, so that the bits of a
// result depend on nothing but its row of a and its row of b.
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

// One block's results: rows m0 on, columns n0 on, of the terms k0 to k1.
template <class T>
LF_DEV void tile(const Product& p, const T* a, const T* b, char* y, i64 m0, i64 m1, i64 n0, i64 k0, i64 k1) {
  __shared__ float as[kDeep][kTile + 4], bs[kDeep][kTile + 4];
  int tx = threadIdx.x % 16, ty = threadIdx.x / 16;
  float acc[4][4] = {};
  for (i64 c0 = k0; c0 < k1; c0 += kDeep) {
    for (int e = threadIdx.x; e < kDeep * kTile; e += 256) {
      int i = p.a_col == 1 ? e / kDeep : e % kTile, c = p.a_col == 1 ? e % kDeep : e / kTile;
      as[c][i] = m0 + i < m1 && c0 + c < k1 ? widen(a[(m0 + i) * p.a_row + (c0 + c) * p.a_col]) : 0;
      i = p.b_col == 1 ? e / kDeep : e % kTile, c = p.b_col == 1 ? e % kDeep : e / kTile;
      bs[c][i] = n0 + i < p.n && c0 + c < k1 ? widen(b[(n0 + i) * p.b_row + (c0 + c) * p.b_col]) : 0;
    }
    __syncthreads();
    float part[4][4] = {};
    for (int c = 0; c < kDeep; c++) {
      float u[4], v[4];
      for (int i = 0; i < 4; i++) u[i] = as[c][ty * 4 + i], v[i] = bs[c][tx * 4 + i];
      for (int i = 0; i < 4; i++)
        for (int j = 0; j < 4; j++) part[i][j] = fmaf(u[i], v[j], part[i][j]);
    }
    for (int i = 0; i < 4; i++)
      for (int j = 0; j < 4; j++) acc[i][j] += part[i][j];
    __syncthreads();
  }
  for (int i = 0; i < 4; i++) {
    i64 row = m0 + ty * 4 + i;
    if (row >= m1) return; // no barrier follows
    for (int j = 0; j < 4; j++) {
      i64 col = n0 + tx * 4 + j, at = row * p.y_row + col;
      if (col >= p.n) break;
      float s = p.bias ? acc[i][j] + ld<T>(p.bias, col) : acc[i][j];
      if (!p.wide) st<T>(y, at, s);
      else ((float*)y)[at] = p.add ? ((float*)y)[at] + s : s;
    }
  }
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
