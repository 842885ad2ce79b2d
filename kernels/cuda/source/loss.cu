#include "lf.cuh"

// The loss over a vocabulary, by blocks of rows and of columns: logits of a block are a product in float32; what is kept of them is a
// maximum and a sum of exponentials a row, and where wanted the exponentials.
struct Loss {
  const float* z; // logits [rows, cols] of a block, or sums to join
  const i32* target;
  float *max, *sum; // [rows, blocks]
  float *hit, *lse;
  void* e; // numerators; rows e_row apart
  float* top; // [rows, blocks]
  i64 rows, cols, e_row, block, blocks, first, v;
  double cap, less; // what top is below the maximum
};

enum { kColumns = 2048 }; // kernels.LSEBlock

// A block of threads a row.
template <class T> LF_DEV void lse_block(const Loss& a) {
  i64 row = blockIdx.x, at = row * a.blocks + a.block, c0 = a.block * kColumns, r = (i64)a.target[row] - a.first;
  const float* z = a.z + row * a.cols;
  float slope, m = -INFINITY, s = 0, cap = (float)a.cap;
  LF_ROW(j, a.cols) m = fmaxf(m, capped(z[j], cap, &slope));
  m = block_max(m);
  float base = m == -INFINITY ? 0 : m, top = m - (float)a.less;
  if (top == -INFINITY) top = 0;
  LF_ROW(j, a.cols) {
    float x = capped(z[j], cap, &slope);
    s += expf(x - base);
    if (a.e) st<T>(a.e, row * a.e_row + j, expf(x - top) * slope);
    if (r == c0 + j) a.hit[row] = x;
  }
  s = block_sum(s);
  if (threadIdx.x != 0) return;
  a.max[at] = m;
  a.sum[at] = s;
  if (a.top) a.top[at] = top;
  if (a.block == 0 && (r < 0 || r >= a.v)) a.hit[row] = 0;
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

// The gradient of a block's logits from numerators; dz may be e.
struct Logits {
  const void *x, *w, *e;
  const float *top, *lse, *weight, *seed;
  const i32* target;
  void* dz;
  i64 cols, d, e_row, dz_row, block, blocks, first;
  double cap;
};

template <class T> LF_DEV void logits_bwd(const Logits& a) {
  i64 row = blockIdx.x, r = (i64)a.target[row] - a.first - a.block * kColumns;
  float by = *a.seed * a.weight[row], f = expf(a.top[row * a.blocks + a.block] - a.lse[row]), slope = 1;
  bool counts = a.target[row] >= 0, here = counts && r >= 0 && r < a.cols;
  if (here && a.cap != 0) { // the whole block
    float s = 0;
    LF_ROW(i, a.d) s += ld<T>(a.x, row * a.d + i) * ld<T>(a.w, (a.block * kColumns + r) * a.d + i);
    capped(block_sum(s), (float)a.cap, &slope);
  }
  LF_ROW(j, a.cols) {
    float dz = counts ? by * ld<T>(a.e, row * a.e_row + j) * f : 0;
    if (here && j == r) dz -= by * slope;
    st<T>(a.dz, row * a.dz_row + j, dz);
  }
}
LF_TYPED(logits_bwd, Logits)
