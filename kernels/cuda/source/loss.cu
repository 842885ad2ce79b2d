#include "lf.cuh"

// The loss over a vocabulary, by blocks of rows and of columns: logits of a block are a product in float32; what is kept of them is a
// maximum and a sum of exponentials a row, and where wanted the exponentials.
struct Loss {
  const float* z; // logits, rows cols apart, or sums to join
  const i32* target;
  float *max, *sum; // [rows, blocks]
  float *hit, *lse;
  void* e; // numerators; rows e_row apart
  float* top; // [rows, blocks]
  i64 rows, cols, e_row, blocks, first, v;
  double cap, less; // what top is below the maximum
};

enum { kColumns = 2048 }; // kernels.LSEBlock

// A block of threads for a row and a block of its columns.
template <class T> LF_DEV void lse_block(const Loss& a) {
  i64 row = blockIdx.x, block = blockIdx.y, at = row * a.blocks + block, c0 = block * kColumns, r = (i64)a.target[row] - a.first;
  i64 cols = a.v - c0 < kColumns ? a.v - c0 : kColumns;
  const float* z = a.z + row * a.cols + c0;
  float slope, m = -INFINITY, s = 0, cap = (float)a.cap;
  T* to = (T*)a.e + row * a.e_row + c0;
  bool whole_z = on_sixteen(a.z, a.cols), whole_e = on_sixteen((const T*)a.e, a.e_row);
  float x[8], e[8];
  LF_ROW_EIGHTS(j, n, cols) {
    load_eight(x, z + j, whole_z, n);
#pragma unroll
    for (int c = 0; c < 8; c++)
      if (c < n) m = fmaxf(m, capped(x[c], cap, &slope));
  }
  m = block_max(m);
  float base = m == -INFINITY ? 0 : m, top = m - (float)a.less;
  if (top == -INFINITY) top = 0;
  LF_ROW_EIGHTS(j, n, cols) {
    load_eight(x, z + j, whole_z, n);
#pragma unroll
    for (int c = 0; c < 8; c++) {
      if (c >= n) continue;
      float y = capped(x[c], cap, &slope), f = expf(y - base);
      s += f;
      e[c] = (base == top ? f : expf(y - top)) * slope;
      if (r == c0 + j + c) a.hit[row] = y;
    }
    if (a.e) store_eight(to + j, e, whole_e, n);
  }
  s = block_sum(s);
  if (threadIdx.x != 0) return;
  a.max[at] = m;
  a.sum[at] = s;
  if (a.top) a.top[at] = top;
  if (block == 0 && (r < 0 || r >= a.v)) a.hit[row] = 0;
}
LF_TYPED(lse_block, Loss)

// The blocks of a row together.
LF_DEV void lse_of_blocks(const Loss& a) {
  LF_EACH(row, a.rows) {
    const float *m = a.max + row * a.blocks, *s = a.sum + row * a.blocks;
    float top = -INFINITY, t = 0;
    for (i64 b = 0; b < a.blocks; b++) top = fmaxf(top, m[b]);
    if (top == -INFINITY) top = 0;
    for (i64 b = 0; b < a.blocks; b++) t += m[b] == -INFINITY ? s[b] : s[b] * expf(m[b] - top);
    a.lse[row] = top + logf(t);
  }
}
LF_ONE(lse_blocks, lse_of_blocks, Loss)

// The logarithm of the sum of exponentials of a row's few numbers.
LF_DEV void lse_join_all(const Loss& a) {
  LF_EACH(row, a.rows) {
    const float* z = a.z + row * a.cols;
    float top = -INFINITY, t = 0;
    for (i64 j = 0; j < a.cols; j++) top = fmaxf(top, z[j]);
    float base = top == -INFINITY ? 0 : top;
    for (i64 j = 0; j < a.cols; j++) t += expf(z[j] - base);
    a.lse[row] = base + logf(t);
  }
}
LF_ONE(lse_join, lse_join_all, Loss)

struct Negative {
  const float *lse, *hit, *weight;
  const i32* target;
  float* y;
  i64 n;
};

LF_DEV void nll_all(const Negative& a) {
  double s = 0;
  LF_ROW(i, a.n) {
    if (a.target[i] >= 0) s += (double)a.weight[i] * ((double)a.lse[i] - (double)a.hit[i]);
  }
  s = block_sum(s);
  if (threadIdx.x == 0) *a.y = (float)s;
}
LF_ONE(nll, nll_all, Negative)

// The gradient of logits from numerators, a block of threads for a row and a block of its columns; dz may be e.
struct Logits {
  const void *x, *w, *e;
  const float *top, *lse, *weight, *seed;
  const i32* target;
  void* dz;
  i64 v, d, e_row, dz_row, blocks, first;
  double cap;
};

template <class T> LF_DEV void logits_bwd(const Logits& a) {
  i64 row = blockIdx.x, c0 = (i64)blockIdx.y * kColumns, r = (i64)a.target[row] - a.first - c0;
  i64 cols = a.v - c0 < kColumns ? a.v - c0 : kColumns;
  float by = *a.seed * a.weight[row], f = expf(at_most_0(a.top[row * a.blocks + blockIdx.y] - a.lse[row])), slope = 1;
  bool counts = a.target[row] >= 0, here = counts && r >= 0 && r < cols;
  if (here && a.cap != 0) { // the whole block
    float s = 0;
    LF_ROW(i, a.d) s += ld<T>(a.x, row * a.d + i) * ld<T>(a.w, (c0 + r) * a.d + i);
    capped(block_sum(s), (float)a.cap, &slope);
  }
  const T* from = (const T*)a.e + row * a.e_row + c0;
  T* to = (T*)a.dz + row * a.dz_row + c0;
  bool whole_e = on_sixteen((const T*)a.e, a.e_row), whole_dz = on_sixteen((const T*)a.dz, a.dz_row);
  LF_ROW_EIGHTS(j, n, cols) {
    float e[8];
    load_eight(e, from + j, whole_e, n);
#pragma unroll
    for (int c = 0; c < 8; c++) {
      e[c] = counts ? by * e[c] * f : 0;
      if (here && j + c == r) e[c] -= by * slope;
    }
    store_eight(to + j, e, whole_dz, n);
  }
}
LF_TYPED(logits_bwd, Logits)
