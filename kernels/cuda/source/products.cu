#include "mma.cuh"

// Products y[i,j] = Σ over c of a[i,c]·b[j,c], with a step from element to element along each axis: that is all three products of
// a linear layer. A block has 64 by 64 results, or 128 by 128 where operands have 16 bits; sums of 16 terms are added up in order of c,
// so that the bits of a result depend on nothing but its row of a and its row of b.
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

// With 16-bit operands by tensor cores: a block has 128 by 128 results, a warp 32 by 64 of them. Three tiles of 32 terms each are on their
// way: one is computed with while the next two are fetched. An operand whose terms lie side by side is fetched by rows, another by terms.
enum { kWide = 128, kTerms = 32, kByRow = kTerms + 8, kByTerm = kWide + 8, kStage = kWide * kByRow, kStages = 3 };

template <class T> LF_DEV void fetch_stage(T* to, const T* x, i64 first, i64 rows, i64 c0, i64 k1, i64 row_step, i64 col_step) {
  for (int e = threadIdx.x; e < kWide * kTerms / 8; e += 256) {
    if (col_step == 1) {
      int i = e / (kTerms / 8), c = e % (kTerms / 8) * 8;
      fetch_eight(to + i * kByRow + c, x + (first + i) * row_step + c0 + c, first + i < rows ? k1 - c0 - c : 0);
    } else {
      int c = e / (kWide / 8), i = e % (kWide / 8) * 8;
      if (row_step == 1) {
        fetch_eight(to + c * kByTerm + i, x + (c0 + c) * col_step + first + i, c0 + c < k1 ? rows - first - i : 0);
        continue;
      }
      for (int j = 0; j < 8; j++) {
        if (c0 + c < k1 && first + i + j < rows) to[c * kByTerm + i + j] = x[(c0 + c) * col_step + (first + i + j) * row_step];
        else narrow(to + c * kByTerm + i + j, 0);
      }
    }
  }
}

// Sixteen rows from i and sixteen terms from c of a stage, as mma wants its first operand; and sixteen rows as it wants the second, twice.
template <class T> LF_DEV void first_of(u32* r, const T* x, bool by_row, int i, int c) {
  int lane = threadIdx.x % 32;
  if (by_row) load_matrices<false>(r, x + (i + lane % 16) * kByRow + c + lane / 16 * 8);
  else load_matrices<true>(r, x + (c + lane % 8 + lane / 16 * 8) * kByTerm + i + lane / 8 % 2 * 8);
}
template <class T> LF_DEV void second_of(u32* r, const T* x, bool by_row, int j, int c) {
  int lane = threadIdx.x % 32;
  if (by_row) load_matrices<false>(r, x + (j + lane / 16 * 8 + lane % 8) * kByRow + c + lane / 8 % 2 * 8);
  else load_matrices<true>(r, x + (c + lane % 8 + lane / 8 % 2 * 8) * kByTerm + j + lane / 16 * 8);
}

template <class T>
LF_DEV void tile(const Product& p, const T* a, const T* b, char* y, i64 m0, i64 m1, i64 n0, i64 k0, i64 k1) {
  LF_SHARED(T, stages);
  int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, q = lane % 4 * 2, i0 = warp % 4 * 32, j0 = warp / 4 * 64;
  int rows = m1 - m0 < kWide ? (int)(m1 - m0) : kWide, cols = p.n - n0 < kWide ? (int)(p.n - n0) : kWide;
  bool a_by_row = p.a_col == 1, b_by_row = p.b_col == 1;
  float acc[2][8][4] = {};
  auto fetch = [&](i64 number) {
    i64 c0 = k0 + number * kTerms;
    if (c0 < k1) {
      T* to = stages + number % kStages * 2 * kStage;
      fetch_stage(to, a, m0, m1, c0, k1, p.a_row, p.a_col);
      fetch_stage(to + kStage, b, n0, p.n, c0, k1, p.b_row, p.b_col);
    }
    close_group();
  };
  fetch(0);
  fetch(1);
  for (i64 number = 0; k0 + number * kTerms < k1; number++) {
    wait_groups<1>();
    __syncthreads(); // this stage is there, and who computed with the one before has done so
    fetch(number + 2);
    const T *as = stages + number % kStages * 2 * kStage, *bs = as + kStage;
    for (int c = 0; c < kTerms; c += 16) {
      u32 u[2][4];
#pragma unroll
      for (int i = 0; i < 2; i++) {
        if (i0 + i * 16 < rows) first_of(u[i], as, a_by_row, i0 + i * 16, c);
      }
#pragma unroll
      for (int j = 0; j < 4; j++) {
        u32 v[4];
        if (j0 + j * 16 >= cols) continue; // the whole warp
        second_of(v, bs, b_by_row, j0 + j * 16, c);
#pragma unroll
        for (int i = 0; i < 2; i++) {
          if (i0 + i * 16 >= rows) continue;
          multiply(acc[i][2 * j], u[i], v, T());
          multiply(acc[i][2 * j + 1], u[i], v + 2, T());
        }
      }
    }
  }
#pragma unroll
  for (int i = 0; i < 2; i++)
#pragma unroll
    for (int j = 0; j < 8; j++)
#pragma unroll
      for (int x = 0; x < 4; x++) put<T>(p, y, m0 + i0 + i * 16 + g + x / 2 * 8, m1, n0 + j0 + j * 8 + q + x % 2, acc[i][j][x]);
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

template <class T> LF_DEV i64 side() { return sizeof(T) == 2 ? kWide : kTile; }

template <class T> LF_DEV void product(const Product& p) {
  i64 s = side<T>();
  tile<T>(p, (const T*)p.a, (const T*)p.b, (char*)p.y, (i64)blockIdx.x * s, p.m, (i64)blockIdx.y * s, 0, p.k);
}
LF_TYPED(product, Product)

// Rows of a in groups, each with a b of its own: the grid has a block for every tile that there may be, m over its side and one a group.
template <class T> LF_DEV void product_rows(const Product& p) {
  i64 left = blockIdx.x, g = 0, s = side<T>();
  for (; g < p.groups; g++) {
    i64 tiles = (p.off[g + 1] - p.off[g] + s - 1) / s;
    if (left < tiles) break;
    left -= tiles;
  }
  if (g == p.groups) return;
  tile<T>(p, (const T*)p.a, (const T*)p.b + g * p.b_group, (char*)p.y, p.off[g] + left * s, p.off[g + 1], (i64)blockIdx.y * s, 0, p.k);
}
LF_TYPED(product_rows, Product)

// Terms in groups, each with a y of its own: gradients of weights.
template <class T> LF_DEV void product_terms(const Product& p) {
  i64 g = blockIdx.z, s = side<T>();
  char* y = (char*)p.y + g * p.y_group * sizeof(float);
  tile<T>(p, (const T*)p.a, (const T*)p.b, y, (i64)blockIdx.x * s, p.m, (i64)blockIdx.y * s, p.off[g], p.off[g + 1]);
}
LF_TYPED(product_terms, Product)

// Where chunks of terms begin, m each: off, in y, of groups chunks and the end.
LF_DEV void chunks_of(const Product& p) {
  LF_EACH(i, p.groups + 1) ((i32*)p.y)[i] = (i32)(i * p.m < p.k ? i * p.m : p.k);
}
LF_ONE(product_chunks, chunks_of, Product)
