#include "lf.cuh"

// What is learnt of single tokens and of a teacher, rows of pages, and tokens of a kind.
struct Token {
  const float *lse, *hit;
  const i32* target;
  float* y;
  i64 n;
};

LF_DEV void token_nll_all(const Token& a) {
  LF_EACH(i, a.n) a.y[i] = a.target[i] >= 0 ? a.lse[i] - a.hit[i] : 0;
}
LF_ONE(token_nll, token_nll_all, Token)

// The divergence of one row's distribution from a teacher's, as kernels/objective/gkd.go has it: in float64, a block for a row.
struct Teacher {
  const float *z, *teacher, *weight, *p, *seed;
  double* part;
  float* y;
  i64 rows, width, mix; // the place of mix among p
};

// Of a row of logits: their greatest, and the logarithm of the sum of exponentials.
LF_DEV double log_sum(const float* z, i64 n) {
  float top = -INFINITY;
  LF_ROW(i, n) top = fmaxf(top, z[i]);
  double s = 0, most = block_max(top);
  LF_ROW(i, n) s += exp((double)z[i] - most);
  return most + log(block_sum(s));
}
// The number with the fewest digits that rounds to x, as a file has it: objective.ParamsOf.
LF_DEV double as_written(float x) {
  double ten = 1;
  for (int i = 0; i < 9; i++, ten *= 10) {
    double v = rint(x * ten) / ten;
    if ((float)v == x) return v;
  }
  return x;
}
LF_DEV double log_mixed(double a, double b) {
  double top = a > b ? a : b;
  return top + log1p(exp((a > b ? b : a) - top));
}

// The loss of one number of the vocabulary, and what the loss changes by with the student's probability; s, t are logarithms.
LF_DEV double divergence_of(double beta, double s, double t, double* g) {
  if (beta == 0) {
    *g = 0;
    return exp(t) * (t - s);
  }
  if (beta == 1) {
    *g = s - t;
    return exp(s) * *g;
  }
  double m = log_mixed(t + log(beta), s + log1p(-beta));
  *g = (1 - beta) * (s - m);
  return beta * exp(t) * (t - m) + exp(s) * *g;
}

LF_DEV void divergence_rows(const Teacher& a) {
  i64 row = blockIdx.x;
  const float *z = a.z + row * a.width, *t = a.teacher + row * a.width;
  double w = a.weight[row], loss = 0, g, beta = as_written(a.p[a.mix]);
  if (w == 0) { // the whole block
    if (threadIdx.x == 0) a.part[row] = 0;
    return;
  }
  double ls = log_sum(z, a.width), lt = log_sum(t, a.width);
  LF_ROW(i, a.width) loss += divergence_of(beta, z[i] - ls, t[i] - lt, &g);
  loss = block_sum(loss);
  if (threadIdx.x == 0) a.part[row] = w * loss;
}
LF_ONE(divergence, divergence_rows, Teacher)

LF_DEV void divergence_total(const Teacher& a) {
  double s = 0;
  LF_ROW(i, a.rows) s += a.part[i];
  s = block_sum(s);
  if (threadIdx.x == 0) *a.y = (float)s;
}
LF_ONE(divergence_sum, divergence_total, Teacher)

LF_DEV void divergence_back(const Teacher& a) {
  i64 row = blockIdx.x;
  const float *z = a.z + row * a.width, *t = a.teacher + row * a.width;
  float* y = a.y + row * a.width;
  double w = a.weight[row], by = w * (double)*a.seed, g, inner = 0, beta = as_written(a.p[a.mix]);
  if (w == 0) { // the whole block
    LF_ROW(i, a.width) y[i] = 0;
    return;
  }
  double ls = log_sum(z, a.width), lt = log_sum(t, a.width);
  if (beta == 0) {
    LF_ROW(i, a.width) y[i] = (float)(by * (exp(z[i] - ls) - exp(t[i] - lt)));
    return;
  }
  LF_ROW(i, a.width) {
    divergence_of(beta, z[i] - ls, t[i] - lt, &g);
    inner += exp(z[i] - ls) * g;
  }
  inner = block_sum(inner);
  LF_ROW(i, a.width) {
    divergence_of(beta, z[i] - ls, t[i] - lt, &g);
    y[i] = (float)(by * (exp(z[i] - ls) * (g - inner)));
  }
}
LF_ONE(divergence_bwd, divergence_back, Teacher)

// Rows of a pool of pages, or of those that have just come.
struct Pages {
  const u8 *pool, *fresh;
  const i32* at;
  u8* y;
  i64 n, bytes, pooled, came;
};

template <class W> LF_DEV void paged(const Pages& a) {
  i64 each = a.bytes / sizeof(W);
  LF_EACH(i, a.n * each) {
    i64 j = a.at[i / each];
    const u8* from = j >= 0 ? (j < a.pooled ? a.pool + j * a.bytes : 0) : (-1 - j < a.came ? a.fresh + (-1 - j) * a.bytes : 0);
    ((W*)a.y)[i] = from ? ((const W*)from)[i % each] : 0;
  }
}
LF_ONE(paged_rows_2, paged<u16>, Pages)
LF_ONE(paged_rows_8, paged<u64>, Pages)

// Tokens of one kind among others.
struct Kind {
  const void* x;
  const i32* kind;
  void* y;
  i64 n, width, of, add;
};

template <class T> LF_DEV void kind_rows(const Kind& a) {
  LF_EACH(i, a.n) {
    if (a.kind[i / a.width] == a.of) ((T*)a.y)[i] = ((const T*)a.x)[i];
    else st<T>(a.y, i, 0);
  }
}
LF_TYPED(kind_rows, Kind)

LF_DEV void kind_experts_all(const Kind& a) {
  LF_EACH(i, a.n) ((i32*)a.y)[i] = a.kind[i / a.width] == a.of ? ((const i32*)a.x)[i] : -1;
}
LF_ONE(kind_experts, kind_experts_all, Kind)

// A block for each expert counts its rows and all.
LF_DEV void kind_surplus_all(const Kind& a) {
  i64 own = 0, all = 0;
  LF_ROW(i, a.n) {
    i64 e = ((const i32*)a.x)[i];
    own += e == blockIdx.x;
    all += e >= 0;
  }
  own = block_sum(own);
  all = block_sum(all);
  float* y = (float*)a.y + blockIdx.x;
  double v = (double)own - (double)all / (double)a.width;
  if (threadIdx.x == 0) *y = (float)(a.add ? *y + v : v);
}
LF_ONE(kind_surplus, kind_surplus_all, Kind)
