#include "lf.cuh"

// Norms over groups of channels of [n, places, c], and what changes the size of space.
struct ChannelGroups {
  const void *x, *dy, *w, *b;
  const float *rstd, *mean, *dw, *db;
  void* y;
  float *rstd_out, *mean_out, *part;
  i64 n, places, c, g, parts, wide; // wide: 1 for a mean in float32, 2 for a variance
  double eps;
};

// Element e of group g of sample n, of places·(c/g): its place in x.
LF_DEV i64 in_group(const ChannelGroups& a, i64 n, i64 g, i64 e) {
  i64 each = a.c / a.g;
  return (n * a.places + e / each) * a.c + g * each + e % each;
}

// The mean of a block's group, and the mean of squares about it.
template <class T> LF_DEV float moments(const ChannelGroups& a, i64 n, i64 g, float* square) {
  i64 size = a.places * (a.c / a.g);
  float s = 0, q = 0;
  LF_ROW(e, size) s += ld<T>(a.x, in_group(a, n, g, e));
  float m = size ? block_sum(s) / size : 0;
  LF_ROW(e, size) {
    float x = ld<T>(a.x, in_group(a, n, g, e)) - m;
    q += x * x;
  }
  *square = size ? block_sum(q) / size : 0;
  return m;
}

// (x - mean)·rstd·w + b
template <class T> LF_DEV float scaled(const ChannelGroups& a, i64 at, float m, float r) {
  float b = a.b ? ld<T>(a.b, at % a.c) : 0;
  return (ld<T>(a.x, at) - m) * r * ld<T>(a.w, at % a.c) + b;
}

template <class T> LF_DEV void group_norm(const ChannelGroups& a) {
  i64 n = blockIdx.x / a.g, g = blockIdx.x % a.g;
  float q, m = moments<T>(a, n, g, &q), r = 1 / sqrtf(q + (float)a.eps);
  if (threadIdx.x == 0) {
    a.rstd_out[blockIdx.x] = r;
    a.mean_out[blockIdx.x] = m;
  }
  LF_ROW(e, a.places * (a.c / a.g)) {
    i64 at = in_group(a, n, g, e);
    st<T>(a.y, at, scaled<T>(a, at, m, r));
  }
}
LF_TYPED(group_norm, ChannelGroups)

template <class T> LF_DEV void group_moments(const ChannelGroups& a) {
  float q, m = moments<T>(a, blockIdx.x / a.g, blockIdx.x % a.g, &q);
  if (threadIdx.x == 0) {
    a.mean_out[blockIdx.x] = m;
    a.rstd_out[blockIdx.x] = q;
  }
}
LF_TYPED(group_moments, ChannelGroups)

// mean and rstd are the parts' means and squares.
LF_DEV void join_groups(const ChannelGroups& a) {
  LF_EACH(i, a.n * a.g) {
    float m = 0, q = 0;
    for (i64 k = 0; k < a.parts; k++) m += a.mean[k * a.n * a.g + i];
    m /= a.parts;
    for (i64 k = 0; k < a.parts; k++) {
      float e = a.mean[k * a.n * a.g + i] - m;
      q += a.rstd[k * a.n * a.g + i] + e * e;
    }
    a.rstd_out[i] = 1 / sqrtf(q / a.parts + (float)a.eps);
    a.mean_out[i] = m;
  }
}
LF_ONE(group_join, join_groups, ChannelGroups)

template <class T> LF_DEV void group_scale(const ChannelGroups& a) {
  LF_EACH(at, a.n * a.places * a.c) {
    i64 g = at / (a.places * a.c) * a.g + at % a.c / (a.c / a.g);
    st<T>(a.y, at, scaled<T>(a, at, a.mean[g], a.rstd[g]));
  }
}
LF_TYPED(group_scale, ChannelGroups)

template <class T> LF_DEV void group_norm_dx(const ChannelGroups& a) {
  i64 n = blockIdx.x / a.g, g = blockIdx.x % a.g, size = a.places * (a.c / a.g);
  float m = a.mean[blockIdx.x], r = a.rstd[blockIdx.x], s = 0, q = 0;
  LF_ROW(i, size) {
    i64 at = in_group(a, n, g, i);
    float e = ld<T>(a.dy, at) * ld<T>(a.w, at % a.c);
    s += e;
    q += e * ((ld<T>(a.x, at) - m) * r);
  }
  float m1 = block_sum(s) / size, m2 = block_sum(q) / size;
  LF_ROW(i, size) {
    i64 at = in_group(a, n, g, i);
    float e = ld<T>(a.dy, at) * ld<T>(a.w, at % a.c);
    st<T>(a.y, at, r * (e - m1 - (ld<T>(a.x, at) - m) * r * m2));
  }
}
LF_TYPED(group_norm_dx, ChannelGroups)

// parts is the places of the whole sample.
template <class T> LF_DEV void group_scale_dx(const ChannelGroups& a) {
  i64 each = a.c / a.g;
  LF_EACH(at, a.places * a.c) {
    i64 g = at % a.c / each;
    float m1 = 0, m2 = 0, by = 1 / ((float)a.parts * each);
    for (i64 j = g * each; j < (g + 1) * each; j++) {
      m1 += ld<T>(a.w, j) * by * a.db[j];
      m2 += ld<T>(a.w, j) * by * a.dw[j];
    }
    float z = (ld<T>(a.x, at) - a.mean[g]) * a.rstd[g];
    st<T>(a.y, at, a.rstd[g] * (ld<T>(a.dy, at) * ld<T>(a.w, at % a.c) - m1 - z * m2));
  }
}
LF_TYPED(group_scale_dx, ChannelGroups)

// Sums over chunks of 64 places of all samples, which rows.cu joins.
template <class T> LF_DEV void group_norm_dw(const ChannelGroups& a) {
  i64 rows = a.n * a.places, from = (i64)blockIdx.x * 64, to = from + 64 < rows ? from + 64 : rows;
  i64 j = (i64)blockIdx.y * blockDim.x + threadIdx.x;
  if (j >= a.c) return;
  float s = 0;
  for (i64 i = from; i < to; i++) {
    i64 g = i / a.places * a.g + j / (a.c / a.g);
    s += ld<T>(a.dy, i * a.c + j) * ((ld<T>(a.x, i * a.c + j) - a.mean[g]) * a.rstd[g]);
  }
  a.part[(i64)blockIdx.x * a.c + j] = s;
}
LF_TYPED(group_norm_dw, ChannelGroups)

// mean and rstd are the statistics, places all rows.
template <class T> LF_DEV void frozen_norm(const ChannelGroups& a) {
  LF_EACH(at, a.places * a.c > a.c ? a.places * a.c : a.c) {
    i64 j = at % a.c;
    float m = a.wide & 1 ? a.mean[j] : ld<T>(a.mean, j), v = a.wide & 2 ? a.rstd[j] : ld<T>(a.rstd, j);
    float r = 1 / sqrtf(v + (float)a.eps);
    if (at < a.c) {
      a.rstd_out[j] = r;
      a.mean_out[j] = m;
    }
    if (at < a.places * a.c) st<T>(a.y, at, scaled<T>(a, at, m, r));
  }
}
LF_TYPED(frozen_norm, ChannelGroups)

template <class T> LF_DEV void frozen_norm_dx(const ChannelGroups& a) {
  LF_EACH(at, a.places * a.c) st<T>(a.y, at, ld<T>(a.dy, at) * a.rstd[at % a.c] * ld<T>(a.w, at % a.c));
}
LF_TYPED(frozen_norm_dx, ChannelGroups)

// Other sizes of three axes of space: in and out are those of x and of y.
struct Sized {
  const void *x, *dy;
  void* y;
  i64 n, c, kind, in[3], out[3], size[3], stride[3], dilation[3], before[3];
};

LF_DEV void coordinates(const i64* size, i64 i, i64* at) {
  at[0] = i / (size[1] * size[2]);
  at[1] = i / size[2] % size[1];
  at[2] = i % size[2];
}

// The inputs of an output along an axis, and the weight of the second.
LF_DEV i64 shares_of(i64 kind, i64 in, i64 out, i64 o, i64* second, double* by) {
  *by = 0;
  if (kind == 0) return *second = o * in / out;
  double s = (o + 0.5) * in / out - 0.5;
  if (s < 0) s = 0;
  i64 i = (i64)s;
  if (i > in - 1) i = in - 1;
  *second = i + 1 < in ? i + 1 : in - 1;
  *by = s - i;
  return i;
}

template <class T> LF_DEV void resize(const Sized& a) {
  i64 outs = a.out[0] * a.out[1] * a.out[2], ins = a.in[0] * a.in[1] * a.in[2];
  LF_EACH(e, a.n * outs * a.c) {
    i64 at[3], i[3][2], n = e / (outs * a.c);
    double w[3][2];
    coordinates(a.out, e / a.c % outs, at);
    for (int d = 0; d < 3; d++) {
      i[d][0] = shares_of(a.kind, a.in[d], a.out[d], at[d], &i[d][1], &w[d][1]);
      w[d][0] = 1 - w[d][1];
    }
    float s = 0;
    for (int k = 0; k < (a.kind ? 8 : 1); k++) { // a share of 0 counts: what is not a number stays one
      int p = k >> 2, q = k >> 1 & 1, r = k & 1;
      float by = (float)(w[0][p] * w[1][q] * w[2][r]);
      s += by * ld<T>(a.x, ((n * ins) + (i[0][p] * a.in[1] + i[1][q]) * a.in[2] + i[2][r]) * a.c + e % a.c);
    }
    st<T>(a.y, e, s);
  }
}
LF_TYPED(resize, Sized)

// The outputs that may read an input along an axis: from first to last.
LF_DEV void readers_of(const Sized& a, int d, i64 i, i64* first, i64* last) {
  double by = (double)a.out[d] / a.in[d];
  double lo = (i - 0.5) * by - 0.5, hi = (i + 1.5) * by - 0.5;
  if (a.kind == 0) lo = i * by - 1, hi = (i + 1) * by + 1;
  *first = clamp((i64)floor(lo) - 1, 0, a.out[d] - 1);
  *last = clamp((i64)ceil(hi) + 1, 0, a.out[d] - 1);
}

// How much of an input an output has along an axis; -1 where it does not read it.
LF_DEV double share_of(const Sized& a, int d, i64 o, i64 i) {
  i64 second;
  double by;
  i64 first = shares_of(a.kind, a.in[d], a.out[d], o, &second, &by);
  if (first != i && second != i) return -1;
  return (first == i ? 1 - by : 0) + (second == i ? by : 0);
}

template <class T> LF_DEV void resize_bwd(const Sized& a) {
  i64 outs = a.out[0] * a.out[1] * a.out[2], ins = a.in[0] * a.in[1] * a.in[2];
  LF_EACH(e, a.n * ins * a.c) {
    i64 at[3], lo[3], hi[3], n = e / (ins * a.c);
    coordinates(a.in, e / a.c % ins, at);
    for (int d = 0; d < 3; d++) readers_of(a, d, at[d], lo + d, hi + d);
    float s = 0;
    for (i64 p = lo[0]; outs && p <= hi[0]; p++) {
      double wp = share_of(a, 0, p, at[0]);
      if (wp < 0) continue;
      for (i64 q = lo[1]; q <= hi[1]; q++) {
        double wq = share_of(a, 1, q, at[1]);
        if (wq < 0) continue;
        for (i64 r = lo[2]; r <= hi[2]; r++) {
          double wr = share_of(a, 2, r, at[2]);
          if (wr >= 0) s += (float)(wp * wq * wr) * ld<T>(a.dy, (n * outs + (p * a.out[1] + q) * a.out[2] + r) * a.c + e % a.c);
        }
      }
    }
    st<T>(a.y, e, s);
  }
}
LF_TYPED(resize_bwd, Sized)

enum { kMaxPool, kMeanPool, kMeanIn };

// The input of a tap of an output, -1 outside.
LF_DEV i64 tapped(const Sized& a, const i64* o, i64 k) {
  i64 tap[3], i = 0;
  coordinates(a.size, k, tap);
  for (int d = 0; d < 3; d++) {
    i64 p = o[d] * a.stride[d] - a.before[d] + tap[d] * a.dilation[d];
    if (p < 0 || p >= a.in[d]) return -1;
    i = i * a.in[d] + p;
  }
  return i;
}

// The first of the largest inputs of an output, and its number; -1 for none. A number that is none comes before any.
template <class T> LF_DEV i64 largest_of(const Sized& a, const void* x, const i64* o, i64 n, i64 ch, float* v) {
  i64 ins = a.in[0] * a.in[1] * a.in[2], best = -1;
  *v = -INFINITY;
  for (i64 k = 0; k < a.size[0] * a.size[1] * a.size[2]; k++) {
    i64 i = tapped(a, o, k);
    if (i < 0) continue;
    float u = ld<T>(x, (n * ins + i) * a.c + ch);
    if (u > *v || best < 0 || (u != u && *v == *v)) best = i, *v = u;
  }
  return best;
}

// What the sum of an output is divided by.
LF_DEV float under_of(const Sized& a, const i64* o) {
  i64 taps = a.size[0] * a.size[1] * a.size[2], n = 0;
  if (a.kind == kMeanPool) return (float)taps;
  for (i64 k = 0; k < taps; k++) n += tapped(a, o, k) >= 0;
  return n > 0 ? (float)n : 1;
}

template <class T> LF_DEV void pool(const Sized& a) {
  i64 outs = a.out[0] * a.out[1] * a.out[2], ins = a.in[0] * a.in[1] * a.in[2];
  LF_EACH(e, a.n * outs * a.c) {
    i64 at[3], n = e / (outs * a.c), ch = e % a.c;
    coordinates(a.out, e / a.c % outs, at);
    float s = 0;
    if (a.kind == kMaxPool) {
      largest_of<T>(a, a.x, at, n, ch, &s);
    } else {
      for (i64 k = 0; k < a.size[0] * a.size[1] * a.size[2]; k++) {
        i64 i = tapped(a, at, k);
        if (i >= 0) s += ld<T>(a.x, (n * ins + i) * a.c + ch);
      }
      s /= under_of(a, at);
    }
    st<T>(a.y, e, s);
  }
}
LF_TYPED(pool, Sized)

template <class T> LF_DEV void pool_bwd(const Sized& a) {
  i64 outs = a.out[0] * a.out[1] * a.out[2], ins = a.in[0] * a.in[1] * a.in[2];
  LF_EACH(e, a.n * ins * a.c) {
    i64 at[3], n = e / (ins * a.c), i = e / a.c % ins, ch = e % a.c;
    coordinates(a.in, i, at);
    float s = 0, v;
    for (i64 k = a.size[0] * a.size[1] * a.size[2] - 1; k >= 0; k--) { // outputs in order
      i64 tap[3], o[3], place = 0;
      bool meets = true;
      coordinates(a.size, k, tap);
      for (int d = 0; d < 3 && meets; d++) {
        i64 p = at[d] + a.before[d] - tap[d] * a.dilation[d];
        meets = p >= 0 && p % a.stride[d] == 0 && p / a.stride[d] < a.out[d];
        o[d] = p / a.stride[d];
        place = place * a.out[d] + o[d];
      }
      if (!meets) continue;
      float dy = ld<T>(a.dy, (n * outs + place) * a.c + ch);
      if (a.x) s += largest_of<T>(a, a.x, o, n, ch, &v) == i ? dy : 0;
      else s += dy / under_of(a, o);
    }
    st<T>(a.y, e, s);
  }
}
LF_TYPED(pool_bwd, Sized)
