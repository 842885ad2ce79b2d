#include "routing.cuh"

struct Router {
  const float *logits, *bias, *dw;
  const i32* idx_in;
  float *w, *dlogits;
  i32* idx;
  i64 e, k, flags, groups, kept, best;
  double scale, eps;
};

// What the scores of the chosen are divided by, and whether it grows with them.
LF_DEV double divisor(const Router& a, const double* s, const i32* idx, bool* grows) {
  i64 score = a.flags & kScoreMask;
  *grows = false;
  if (!(a.flags & kNormalize) && score != kSoftmaxChosen) return 1;
  double sum = 0;
  for (i64 j = 0; j < a.k; j++) sum += s[idx[j]];
  *grows = true;
  if (score == kSoftmaxChosen) return sum;
  if (!(a.flags & kFloor)) return sum + a.eps;
  *grows = !(sum < a.eps);
  return sum < a.eps ? a.eps : sum;
}

// Takes the experts of all but the best groups out of the choice.
LF_DEV void limit_groups(const Router& a, double* choice, double* group) {
  i64 size = a.e / a.groups;
  LF_ROW(g, a.groups) {
    double sum = 0;
    for (i64 r = 0; r < a.best; r++)
      for (i64 i = g * size; i < (g + 1) * size; i++)
        if (rank_of(choice, g * size, (g + 1) * size, i) == r) sum += choice[i];
    group[g] = sum;
  }
  __syncthreads();
  LF_ROW(i, a.e) {
    if (rank_of(group, 0, a.groups, i / size) >= a.kept) choice[i] = -INFINITY;
  }
  __syncthreads();
}

LF_DEV void route_token(const Router& a) {
  LF_SHARED(double, s);
  double *choice = s + a.e, *group = choice + a.e;
  i64 row = blockIdx.x;
  const float* logits = a.logits + row * a.e;
  i32* idx = a.idx + row * a.k;
  scores_of(s, logits, a.e, a.flags & kScoreMask);
  LF_ROW(i, a.e) {
    choice[i] = (a.flags & kScoreMask) == kSoftmaxChosen ? logits[i] : s[i];
    if (a.bias) choice[i] += a.bias[i];
  }
  __syncthreads();
  if (a.groups > 1) limit_groups(a, choice, group);
  LF_ROW(i, a.e) {
    i64 r = rank_of(choice, 0, a.e, i);
    if (r < a.k) idx[r] = (i32)i;
  }
  __syncthreads();
  bool grows;
  double div = divisor(a, s, idx, &grows), scale = a.scale == 0 ? 1 : a.scale;
  LF_ROW(j, a.k) a.w[row * a.k + j] = (float)(s[idx[j]] / div * scale);
}
LF_ONE(route, route_token, Router)

LF_DEV void route_token_bwd(const Router& a) {
  LF_SHARED(double, s);
  double *ds = s + a.e, scale = a.scale == 0 ? 1 : a.scale, mean = 0;
  i64 row = blockIdx.x;
  const float *logits = a.logits + row * a.e, *dw = a.dw + row * a.k;
  const i32* idx = a.idx_in + row * a.k;
  scores_of(s, logits, a.e, a.flags & kScoreMask);
  bool grows;
  double div = divisor(a, s, idx, &grows);
  for (i64 j = 0; grows && j < a.k; j++) mean += dw[j] * scale * s[idx[j]] / div;
  LF_ROW(i, a.e) ds[i] = 0;
  __syncthreads();
  LF_ROW(j, a.k) ds[idx[j]] = (dw[j] * scale - mean) / div;
  __syncthreads();
  scores_bwd(s, ds, logits, a.dlogits + row * a.e, a.e, a.flags & kScoreMask);
}
LF_ONE(route_bwd, route_token_bwd, Router)

// Rows in order of (place, token). A block has one place; counts come first, then where rows lie.
struct Order {
  const i32* idx;
  const float* w;
  const i32* at; // the expert of each place, or none
  i32 *from, *slot, *counts;
  i64 n, e, k, most, by_weight; // n rows of k a token, e places
};

// Which rows go to a place: those of its expert's tokens whose turn it is among the expert's copies.
struct Turn {
  i64 expert, number, copies;
};

LF_DEV Turn turn_of(const Order& a, i64 place) {
  Turn t = {place, 0, 1};
  if (!a.at) return t;
  t.expert = a.at[place];
  t.copies = 0;
  for (i64 q = 0; q < a.e; q++) {
    if (a.at[q] != t.expert) continue;
    t.number += q < place;
    t.copies++;
  }
  return t;
}

LF_DEV bool goes(const Order& a, const Turn& t, i64 i) {
  return a.idx[i] == t.expert && i / a.k % t.copies == t.number;
}

LF_DEV void count_rows(const Order& a) {
  i64 me = blockIdx.x, n = 0;
  Turn turn = turn_of(a, me);
  LF_ROW(i, a.n) n += goes(a, turn, i);
  n = block_sum(n);
  if (threadIdx.x == 0) a.counts[me] = (i32)n;
}
LF_ONE(route_counts, count_rows, Order)

// A row's weight as a number that is greater for what comes earlier: order_of's order.
LF_DEV u32 weight_order(float w) {
  if (w != w) return 0xffffffffu;
  if (w == 0) w = 0; // both zeros are one
  u32 u = bits_of(w);
  return u & 0x80000000u ? ~u : u | 0x80000000u;
}

// The most-th greatest weight of a place's rows, and in more how many rows have a greater one.
LF_DEV u32 least_weight(const Order& a, const Turn& turn, i64* more) {
  u32 least = 0;
  *more = 0;
  for (int bit = 31; bit >= -1; bit--) { // the last time counts what is above the weight that was found
    u32 from = bit < 0 ? least + 1 : least | 1u << bit;
    i64 n = 0;
    LF_ROW(i, a.n) n += goes(a, turn, i) && weight_order(a.w[i]) >= from;
    n = block_sum(n);
    if (bit < 0) *more = from == 0 ? 0 : n;
    else if (n >= a.most) least = from;
  }
  return least;
}

// How many threads of the block before this one have it, and in all how many of them.
LF_DEV i64 block_before(bool have, i64* all) {
  __shared__ i32 part[32];
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  u32 of = have ? 1u << lane : 0;
  for (int o = 16; o > 0; o >>= 1) of |= __shfl_xor_sync(FULL, of, o);
  __syncthreads(); // an earlier one has been read
  if (lane == 0) part[warp] = bits_set(of);
  __syncthreads();
  i64 before = bits_set(of & ((1u << lane) - 1));
  *all = 0;
  for (int i = 0; i < (int)blockDim.x / 32; i++) {
    before += i < warp ? part[i] : 0;
    *all += part[i];
  }
  return before;
}

// Where a place takes fewer rows than it is asked for, those of greater weight are taken, and of equal weights the first.
LF_DEV void place_rows(const Order& a) {
  i64 me = blockIdx.x, at = 0, taken = 0, same = 0, width = blockDim.x, more = 0, all;
  Turn turn = turn_of(a, me);
  for (i64 x = 0; x < me; x++) at += a.counts[x] < a.most ? a.counts[x] : a.most;
  bool weigh = a.by_weight && a.counts[me] > a.most;
  u32 least = weigh ? least_weight(a, turn, &more) : 0;
  for (i64 i0 = 0; i0 < a.n; i0 += width) {
    i64 i = i0 + threadIdx.x;
    bool hit = i < a.n && goes(a, turn, i);
    if (weigh) { // the whole block
      u32 w = hit ? weight_order(a.w[i]) : 0;
      bool equal = hit && w == least;
      i64 before = block_before(equal, &all);
      hit = hit && (w > least || (equal && same + before < a.most - more));
      same += all;
    }
    i64 before = block_before(hit, &all);
    if (hit && taken + before < a.most) {
      a.slot[i] = (i32)(at + taken + before);
      a.from[at + taken + before] = (i32)i;
    }
    taken += all;
  }
}
LF_ONE(route_places, place_rows, Order)

LF_DEV void limit_counts(const Order& a) {
  LF_EACH(i, a.e) {
    if (a.counts[i] > a.most) a.counts[i] = (i32)a.most;
  }
}
LF_ONE(route_limit, limit_counts, Order)
