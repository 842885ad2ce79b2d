#pragma once
#include "lf.cuh"

// Scores of experts in float64, as kernels/routing has them. A block is one warp and has one token.
enum { kSoftmax, kSigmoid, kSqrtSoftplus, kSoftmaxChosen };
enum { kScoreMask = 15, kNormalize = 16, kFloor = 32 };

// The greater of two; what is not a number is carried on.
LF_DEV double greater(double x, double y) { return y > x || y != y ? y : x; }
LF_DEV double warp_max(double v) {
  for (int o = 16; o > 0; o >>= 1) v = greater(v, __shfl_xor_sync(FULL, v, o));
  return v;
}

// -1 if x comes before y: the greater, and what is no number before all.
LF_DEV int order_of(double x, double y) {
  bool nx = x != x, ny = y != y;
  if (nx != ny) return nx ? -1 : 1;
  return x > y ? -1 : x < y ? 1 : 0;
}

// How many of v[from, to) come before v[i]; of equals, those with lower numbers do.
LF_DEV i64 rank_of(const double* v, i64 from, i64 to, i64 i) {
  i64 n = 0;
  for (i64 j = from; j < to; j++) {
    int o = order_of(v[j], v[i]);
    n += o < 0 || (o == 0 && j < i);
  }
  return n;
}

// Exponentials less the greatest to s, and their sum.
LF_DEV double exponentials(double* s, const float* logits, i64 e, double* greatest) {
  double top = -INFINITY, sum = 0;
  LF_ROW(i, e) top = greater(top, logits[i]);
  top = warp_max(top);
  LF_ROW(i, e) {
    s[i] = exp((double)logits[i] - top);
    sum += s[i];
  }
  *greatest = top;
  return warp_sum(sum);
}

// The scores of a token's experts to s; those of kSoftmaxChosen have no divisor yet.
LF_DEV void scores_of(double* s, const float* logits, i64 e, i64 score) {
  double top;
  if (score == kSigmoid) {
    LF_ROW(i, e) s[i] = sigmoid((double)logits[i]);
  } else if (score == kSqrtSoftplus) {
    LF_ROW(i, e) {
      double x = logits[i];
      s[i] = sqrt((x > 0 ? x : 0) + log1p(exp(-fabs(x))));
    }
  } else {
    double sum = exponentials(s, logits, e, &top);
    if (score == kSoftmax) {
      LF_ROW(i, e) s[i] /= sum;
    }
  }
  __syncthreads();
}

// Carries the gradient ds of scores s to logits.
LF_DEV void scores_bwd(const double* s, const double* ds, const float* logits, float* out, i64 e, i64 score) {
  double mean = 0;
  LF_ROW(i, e) mean += ds[i] * s[i];
  mean = warp_sum(mean);
  LF_ROW(i, e) {
    double d;
    if (score == kSigmoid) d = ds[i] * s[i] * (1 - s[i]);
    else if (score == kSqrtSoftplus) d = ds[i] == 0 ? 0 : ds[i] * sigmoid((double)logits[i]) / (2 * s[i]);
    else if (score == kSoftmaxChosen) d = ds[i] * s[i];
    else d = s[i] * (ds[i] - mean);
    out[i] = (float)d;
  }
}
