#include "routing.cuh"

// Losses that balance experts. share [t, e] and top [t, e] are a token's scores as shares of their sum, and whether an expert is among
// its k best.
struct Balance {
  const float *logits, *dsums, *seed, *sums_in;
  const i32 *cu, *idx;
  double *share, *each; // each [c, 2, e]: sums of a sequence
  i32* top;
  float *sums, *loss, *dlogits;
  i64 t, e, k, score, first, c, add;
  double f;
};

// The rows that sequences have, of those from the first on.
struct Counted { i64 from, to; };
LF_DEV Counted counted(const Balance& a) {
  i64 from = a.cu[0] - a.first, to = a.cu[a.c] - a.first;
  from = from < 0 ? 0 : from > a.t ? a.t : from;
  to = to < from ? from : to > a.t ? a.t : to;
  return {from, to};
}

LF_DEV void token_shares(const Balance& a) {
  LF_SHARED(double, s);
  i64 row = blockIdx.x;
  double sum = 0;
  scores_of(s, a.logits + row * a.e, a.e, a.score);
  LF_ROW(i, a.e) sum += s[i];
  sum = warp_sum(sum);
  __syncthreads();
  LF_ROW(i, a.e) s[i] /= sum;
  __syncthreads();
  LF_ROW(i, a.e) {
    a.share[row * a.e + i] = s[i];
    a.top[row * a.e + i] = rank_of(s, 0, a.e, i) < a.k;
  }
}
LF_ONE(balance_rows, token_shares, Balance)

// One expert over rows: how often it is among the best, and its shares.
LF_DEV void expert_sums(const Balance& a, i64 expert, Counted r, double* n, double* p) {
  double best = 0, share = 0;
  for (i64 i = r.from + threadIdx.x; i < r.to; i += blockDim.x) {
    best += a.top[i * a.e + expert];
    share += a.share[i * a.e + expert];
  }
  *n = block_sum(best);
  *p = block_sum(share);
}

LF_DEV void sums_of_experts(const Balance& a) {
  double n, p;
  expert_sums(a, blockIdx.x, counted(a), &n, &p);
  if (threadIdx.x != 0) return;
  a.sums[blockIdx.x] = (float)n;
  a.sums[a.e + blockIdx.x] = (float)p;
}
LF_ONE(balance_sums, sums_of_experts, Balance)

LF_DEV void sums_of_sequences(const Balance& a) {
  double n, p, *to = a.each + (i64)blockIdx.x * 2 * a.e + blockIdx.y;
  expert_sums(a, blockIdx.y, {a.cu[blockIdx.x], a.cu[blockIdx.x + 1]}, &n, &p);
  if (threadIdx.x != 0) return;
  to[0] = n;
  to[a.e] = p;
}
LF_ONE(balance_each_sums, sums_of_sequences, Balance)

// What a sequence's sums are multiplied with: f over the square of its rows and the number of sequences that have some.
LF_DEV double per_sequence(const Balance& a, i64 s) {
  double n = 0, rows = a.cu[s + 1] - a.cu[s];
  for (i64 i = 0; i < a.c; i++) n += a.cu[i + 1] > a.cu[i];
  return rows > 0 ? a.f / (rows * rows * n) : 0;
}

LF_DEV void loss_of_sequences(const Balance& a) {
  double loss = 0;
  for (i64 s = threadIdx.x; s < a.c; s += blockDim.x) {
    double by = per_sequence(a, s), dot = 0;
    const double* n = a.each + s * 2 * a.e;
    if (by == 0 && a.cu[s + 1] == a.cu[s]) continue;
    for (i64 i = 0; i < a.e; i++) dot += n[i] * n[a.e + i];
    loss += by * dot;
  }
  loss = block_sum(loss);
  if (threadIdx.x == 0) *a.loss = (float)loss;
}
LF_ONE(balance_each, loss_of_sequences, Balance)

// The gradient of a token's logits from that of its shares, in ds; one warp.
LF_DEV void shares_bwd(const Balance& a, double* s, double* ds, i64 row) {
  double sum = 0, mean = 0;
  scores_of(s, a.logits + row * a.e, a.e, a.score);
  LF_ROW(i, a.e) {
    sum += s[i];
    mean += ds[i] * s[i];
  }
  sum = warp_sum(sum);
  mean = warp_sum(mean);
  LF_ROW(i, a.e) ds[i] = (ds[i] - mean / sum) / sum;
  __syncthreads();
  scores_bwd(s, ds, a.logits + row * a.e, a.dlogits + row * a.e, a.e, a.score);
}

LF_DEV void token_sums_bwd(const Balance& a) {
  LF_SHARED(double, s);
  double* ds = s + a.e;
  i64 row = blockIdx.x;
  Counted r = counted(a);
  if (row < r.from || row >= r.to) {
    LF_ROW(i, a.e) a.dlogits[row * a.e + i] = 0;
    return;
  }
  LF_ROW(i, a.e) ds[i] = a.dsums[a.e + i];
  shares_bwd(a, s, ds, row);
}
LF_ONE(balance_sums_bwd, token_sums_bwd, Balance)

LF_DEV void token_each_bwd(const Balance& a) {
  LF_SHARED(double, s);
  double* ds = s + a.e;
  i64 row = blockIdx.x, q = a.c == 0 ? 0 : sequence_of(a.cu, a.c, row);
  if (a.c == 0 || row < a.cu[q] || row >= a.cu[q + 1]) {
    LF_ROW(i, a.e) a.dlogits[row * a.e + i] = 0;
    return;
  }
  double by = *a.seed * per_sequence(a, q);
  LF_ROW(i, a.e) ds[i] = a.each[q * 2 * a.e + i] * by;
  shares_bwd(a, s, ds, row);
}
LF_ONE(balance_each_bwd, token_each_bwd, Balance)

// What each pair of sums is multiplied with.
LF_DEV double per_pair(const Balance& a) {
  double n = 0;
  LF_ROW(i, a.e) n += (double)a.sums_in[i] / a.k;
  n = block_sum(n);
  return n == 0 ? 0 : a.f / (n * n);
}

LF_DEV void loss_of_sums(const Balance& a) {
  double by = per_pair(a), dot = 0;
  LF_ROW(i, a.e) dot += (double)a.sums_in[i] * a.sums_in[a.e + i];
  dot = block_sum(dot);
  if (threadIdx.x == 0) *a.loss = (float)(by * dot);
}
LF_ONE(balance_loss, loss_of_sums, Balance)

LF_DEV void loss_of_sums_bwd(const Balance& a) {
  double by = *a.seed * per_pair(a);
  LF_ROW(i, a.e) {
    a.sums[i] = 0;
    a.sums[a.e + i] = (float)(by * a.sums_in[i]);
  }
}
LF_ONE(balance_loss_bwd, loss_of_sums_bwd, Balance)

// How many rows go to an expert less the mean of all; k experts a token.
LF_DEV void rows_less_mean(const Balance& a) {
  Counted r = counted(a);
  double n = 0;
  for (i64 i = r.from * a.k + threadIdx.x; i < r.to * a.k; i += blockDim.x) n += a.idx[i] == (i32)blockIdx.x;
  n = block_sum(n);
  if (threadIdx.x != 0) return;
  n -= (double)((r.to - r.from) * a.k) / a.e;
  a.sums[blockIdx.x] = (float)(a.add ? a.sums[blockIdx.x] + n : n);
}
LF_ONE(surplus, rows_less_mean, Balance)

// The logarithm of a token's sum of exponentials: its square to share, or the gradient.
LF_DEV double log_sum(const Balance& a, double* s, i64 row) {
  double top, sum = exponentials(s, a.logits + row * a.e, a.e, &top);
  __syncthreads();
  LF_ROW(i, a.e) s[i] /= sum;
  return top + log(sum);
}

LF_DEV void z_of_token(const Balance& a) {
  LF_SHARED(double, s);
  i64 row = blockIdx.x;
  Counted r = counted(a);
  double z = log_sum(a, s, row);
  if (threadIdx.x == 0) a.share[row] = row >= r.from && row < r.to ? z * z : 0;
}
LF_ONE(z_rows, z_of_token, Balance)

LF_DEV double per_token(const Balance& a) {
  i64 n = a.cu[a.c] - a.cu[0];
  return a.f / (n < 1 ? 1 : n);
}

LF_DEV void z_total(const Balance& a) {
  double sum = 0;
  LF_ROW(i, a.t) sum += a.share[i];
  sum = block_sum(sum);
  if (threadIdx.x == 0) *a.loss = (float)(per_token(a) * sum);
}
LF_ONE(z_loss, z_total, Balance)

LF_DEV void z_of_token_bwd(const Balance& a) {
  LF_SHARED(double, s);
  i64 row = blockIdx.x;
  Counted r = counted(a);
  bool counts = row >= r.from && row < r.to;
  double by = 2 * *a.seed * per_token(a) * log_sum(a, s, row);
  LF_ROW(i, a.e) a.dlogits[row * a.e + i] = counts ? (float)(s[i] * by) : 0;
}
LF_ONE(z_loss_bwd, z_of_token_bwd, Balance)
