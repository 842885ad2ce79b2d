#include "lf.cuh"

// Operands of few bits (kernels/precision.go says which numbers come out, to the bit): matrices in blocks of high × broad numbers that
// share a scale. A warp has one row of blocks in a strip of columns: its lanes go over the strip's columns, each over the rows of the
// block. Where all of a matrix shares a scale, blocks are what a warp has at once.
struct Low {
  const void* x;
  void* y;
  float *most, *all;   // the greatest magnitudes of blocks, and of matrices; infinity where a number is not finite
  const i32* off;      // rows of matrices, or none: all have each
  const float* choice; // where [0] > 0 nothing is rounded; or none
  const i64* draw;     // of kernels.Noise; or none
  i64 rows, width, each, matrices, bands, high, broad, whole, mixed, chance, rule, kept, mantissa, least, top, site;
  double greatest;
};

enum { kScaleFloat, kScalePower, kScaleMX, kScaleNV };

// Where a band of rows lies: of which matrix, its first row and those of the band.
struct Band {
  i64 matrix, first, from, to;
};

LF_DEV bool band_of(const Low& a, i64 b, Band* o) {
  if (!a.off) {
    i64 n = (a.each + a.high - 1) / a.high;
    o->matrix = b / n;
    o->first = o->matrix * a.each;
    o->from = o->first + b % n * a.high;
    o->to = o->first + a.each;
  } else {
    i64 g = 0;
    for (; g < a.matrices; g++) {
      i64 n = (a.off[g + 1] - a.off[g] + a.high - 1) / a.high;
      if (b < n) break;
      b -= n;
    }
    if (g == a.matrices) return false;
    o->matrix = g;
    o->first = a.off[g];
    o->from = o->first + b * a.high;
    o->to = a.off[g + 1];
  }
  if (o->to > o->from + a.high) o->to = o->from + a.high;
  return true;
}

// Sixteen rows of a column from row r on, no further than to; turned by Hadamard's matrix where that is wanted and all are there.
template <class T> LF_DEV void column_run(const Low& a, const Band& at, i64 r, i64 j, float* v) {
#pragma unroll
  for (int i = 0; i < 16; i++) v[i] = r + i < at.to ? ld<T>(a.x, (r + i) * a.width + j) : 0;
  if (!a.mixed || r + 16 > at.to) return;
  const u32 minus = 0xd7e8; // bits of the signs that are minus: 3, 5 to 10, 12, 14, 15
#pragma unroll
  for (int i = 0; i < 16; i++)
    if (minus >> i & 1) v[i] = -v[i];
#pragma unroll
  for (int apart = 1; apart < 16; apart *= 2) {
#pragma unroll
    for (int i = 0; i < 16; i++) {
      if (i & apart) continue;
      float s = v[i] + v[i + apart], d = v[i] - v[i + apart];
      v[i] = s;
      v[i + apart] = d;
    }
  }
#pragma unroll
  for (int i = 0; i < 16; i++) v[i] *= 0.25f;
}

LF_DEV float magnitude(float v) {
  v = fabsf(v);
  return v <= LF_MOST_F32 ? v : INFINITY;
}

// The greatest over the lanes that have columns of one block.
LF_DEV float block_lanes(float m, i64 broad) {
  i64 lanes = broad < 32 ? broad : 32;
  for (i64 o = lanes / 2; o > 0; o >>= 1) m = fmaxf(m, __shfl_xor_sync(FULL, m, (int)o));
  return m;
}

LF_DEV i64 strip_of(const Low& a) { return a.broad < 32 ? 32 : a.broad; }

template <class T> LF_DEV void low_most(const Low& a) {
  i64 unit = ((i64)blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32, strip = strip_of(a);
  i64 strips = (a.width + strip - 1) / strip, columns = (a.width + a.broad - 1) / a.broad;
  Band at;
  if (unit >= a.bands * strips || !band_of(a, unit / strips, &at)) return; // a whole warp
  i64 from = unit % strips * strip, to = from + strip < a.width ? from + strip : a.width;
  float m = 0;
  for (i64 j = from + lane; j < to; j += 32)
    if (a.high == 1) m = fmaxf(m, magnitude(ld<T>(a.x, at.from * a.width + j)));
    else
      for (i64 r = at.from; r < at.to; r += 16) {
        float v[16];
        column_run<T>(a, at, r, j, v);
#pragma unroll
        for (int i = 0; i < 16; i++) m = fmaxf(m, magnitude(v[i])); // those behind the end are 0
      }
  m = block_lanes(m, a.broad);
  i64 column = from + lane;
  if (column < to && (a.broad < 32 ? column % a.broad == 0 : lane == 0)) a.most[unit / strips * columns + column / a.broad] = m;
}
LF_TYPED(low_most, Low)

// A block has a matrix: the greatest of its blocks.
LF_DEV void all_of(const Low& a) {
  i64 columns = (a.width + a.broad - 1) / a.broad, g = blockIdx.x, from = 0, n = 0;
  if (!a.off) {
    n = (a.each + a.high - 1) / a.high;
    from = g * n;
  } else
    for (i64 i = 0; i <= g; i++) {
      from += n;
      n = (a.off[i + 1] - a.off[i] + a.high - 1) / a.high;
    }
  float m = 0;
  LF_ROW(i, n * columns) m = fmaxf(m, a.most[from * columns + i]);
  m = block_max(m);
  if (threadIdx.x == 0) a.all[g] = m;
}
LF_ONE(low_all, all_of, Low)

LF_DEV float power_of(i64 e) { return of_bits((u32)(127 + e) << 23); }

// Nearest of a normal number of e4m3.
LF_DEV float near_e4m3(float x) {
  u32 u = bits_of(x);
  float y = of_bits((u + (1u << 19) - 1 + (u >> 20 & 1)) & ~((1u << 20) - 1));
  return y < 448.f ? y : 448.f;
}

// Grain.Factor.
LF_DEV void low_factor(const Low& a, float most, float all, float* by, float* back) {
  float number = (float)a.greatest;
  if (a.whole) most = all;
  u32 u = bits_of(most);
  if (a.rule == kScalePower || a.rule == kScaleMX) {
    i64 e = a.top - ((i64)(u >> 23) - 127);
    if (a.rule == kScalePower && (u & 0x7fffff) > (bits_of(number) & 0x7fffff)) e--;
    if (e > -100 && e < 100) {
      *by = power_of(e);
      *back = power_of(-e);
      return;
    }
  }
  *by = *back = 1;
  if (a.rule == kScaleNV && most <= LF_MOST_F32 && all <= LF_MOST_F32 && all > 0) {
    float matrix = all / (448.f * number);
    if (matrix == 0) return; // of subnormal numbers
    float block = most / number / matrix;
    block = near_e4m3(fminf(fmaxf(block, 1.f / 64), 448.f));
    *by = 1 / matrix / block;
    *back = matrix * block;
    return;
  }
  if (a.rule != kScaleNV && most == 0 || a.rule == kScaleNV && all == 0) return;
  if (!(most <= LF_MOST_F32)) {
    *by = *back = NAN;
    return;
  }
  float f = number / most;
  if (a.rule == kScalePower) f = of_bits(bits_of(f) & 0x7f800000);
  else if (a.rule == kScaleMX) {
    int e;
    frexp((double)most, &e);
    f = (float)ldexp(1.0, (int)a.top - (e - 1));
  }
  if (f > LF_MOST_F32 || f == 0) f = a.rule == kScaleFloat ? LF_MOST_F32 : power_of(127); // of subnormal numbers
  *by = f;
  *back = 1 / f;
}

// Number.Nearest.
LF_DEV float low_nearest(const Low& a, float x) {
  float m = fabsf(x), most = (float)a.greatest;
  if (m != m) return x;
  if (m < most) {
    i64 e = (i64)(bits_of(m) >> 23) - 127;
    e = (e < a.least ? a.least : e) - a.mantissa;
    m = rintf(m * power_of(-e)) * power_of(e);
  }
  return copysignf(m < most ? m : most, x);
}

// Number.StochasticRound.
LF_DEV float low_chance(const Low& a, float x, u32 noise) {
  u32 u = bits_of(x), m = u & 0x7fffffff, sign = u & 0x80000000, h = noise >> 8;
  if (m > 0x7f800000) return x;
  if ((i64)(m >> 23) - 127 < a.least) {
    float s = of_bits(m) * power_of(a.mantissa - a.least), low = (float)(u32)s;
    if ((float)h < (s - low) * 16777216.f) low++;
    return of_bits(bits_of(low * power_of(a.least - a.mantissa)) | sign);
  }
  u32 shift = (u32)(23 - a.mantissa), rest = m & ((1u << shift) - 1), most = bits_of((float)a.greatest);
  m -= rest;
  if (h < rest << (24 - shift)) m += 1u << shift;
  return of_bits((m < most ? m : most) | sign);
}

// kernels.Noise.Row, of a row.
LF_DEV u32 row_noise(const Low& a, i64 row) {
  u64 of = mix64((a.draw ? (u64)a.draw[0] : 0) + (u64)a.site * LF_GOLDEN);
  return (u32)(mix64(of + (u64)(row + 1) * LF_GOLDEN) >> 32);
}

LF_DEV float low_number(const Low& a, float v, float by, float back, i64 row, i64 column) {
  v *= by;
  return (a.chance ? low_chance(a, v, noise_at(row_noise(a, row), (u64)column)) : low_nearest(a, v)) * back;
}

template <class T> LF_DEV void low_round(const Low& a) {
  i64 unit = ((i64)blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32, strip = strip_of(a);
  i64 strips = (a.width + strip - 1) / strip, columns = (a.width + a.broad - 1) / a.broad;
  Band at;
  if (unit >= a.bands * strips || !band_of(a, unit / strips, &at)) return;
  i64 from = unit % strips * strip, to = from + strip < a.width ? from + strip : a.width;
  if (a.choice && a.choice[0] > 0) {
    for (i64 r = at.from; r < at.to; r++)
      for (i64 j = from + lane; j < to; j += 32) ((T*)a.y)[r * a.width + j] = ((const T*)a.x)[r * a.width + j];
    return;
  }
  float by, back, all = a.kept ? a.choice[a.kept] : a.all ? a.all[at.matrix] : 0;
  i64 mine = from + lane < to ? from + lane : to - 1; // a lane's columns are of one block
  low_factor(a, a.most ? a.most[unit / strips * columns + mine / a.broad] : all, all, &by, &back);
  for (i64 j = from + lane; j < to; j += 32)
    if (a.high == 1) {
      i64 i = at.from * a.width + j;
      st<T>(a.y, i, low_number(a, ld<T>(a.x, i), by, back, at.from, j));
    } else
      for (i64 r = at.from; r < at.to; r += 16) {
        float v[16];
        column_run<T>(a, at, r, j, v);
#pragma unroll
        for (int i = 0; i < 16; i++)
          if (r + i < at.to) st<T>(a.y, (r + i) * a.width + j, low_number(a, v[i], by, back, r + i, j));
      }
}
LF_TYPED(low_round, Low)

// The byte of a number of e4m3, and back.
LF_DEV u8 e4m3_code(float x) {
  u32 u = bits_of(x), m = u & 0x7fffffff;
  u8 sign = (u8)(u >> 24 & 128);
  if (m > 0x7f800000) return sign | 127;
  if (m < 0x3c800000) return sign | (u8)(of_bits(m) * 512);
  return sign | (u8)((m >> 20) - 0x3c8 + 8);
}
LF_DEV float of_e4m3(u8 c) {
  u32 e = c >> 3 & 15, m = c & 7;
  float v = (c & 127) == 127 ? NAN : e == 0 ? (float)m * 0x1p-9f : (float)(8 + m) * power_of((i64)e - 10);
  return c & 128 ? -v : v;
}

// Rows in codes: behind those the scales of blocks, byte by byte. A thread has a number.
template <class T> LF_DEV void encode_rows(const Low& a) {
  i64 blocks = (a.width + a.broad - 1) / a.broad, line = a.width + 4 * blocks;
  LF_EACH(i, a.rows * a.width) {
    i64 r = i / a.width, j = i % a.width;
    float by, back;
    low_factor(a, a.most[r * blocks + j / a.broad], 0, &by, &back);
    u8* y = (u8*)a.y + r * line;
    y[j] = e4m3_code(low_nearest(a, ld<T>(a.x, i) * by));
    if (j % a.broad == 0)
      for (int k = 0; k < 4; k++) y[a.width + 4 * (j / a.broad) + k] = (u8)(bits_of(back) >> 8 * k);
  }
}
LF_TYPED(encode_rows, Low)

template <class T> LF_DEV void decode_rows(const Low& a) {
  i64 blocks = (a.width + a.broad - 1) / a.broad, line = a.width + 4 * blocks;
  LF_EACH(i, a.rows * a.width) {
    i64 j = i % a.width;
    const u8 *x = (const u8*)a.x + i / a.width * line, *s = x + a.width + 4 * (j / a.broad);
    st<T>(a.y, i, of_e4m3(x[j]) * of_bits((u32)s[0] | (u32)s[1] << 8 | (u32)s[2] << 16 | (u32)s[3] << 24));
  }
}
LF_TYPED(decode_rows, Low)

// What follows from the greatest numbers of a step: all in one block.
struct Kept {
  const float* x;
  float* y;
  const double* clip;
  i64 n, set, overflow;
};

LF_DEV void largest_of(const Kept& a) {
  if (a.clip && a.clip[a.overflow] != 0) return;
  LF_EACH(i, a.n) if (a.set || a.x[i] > a.y[i]) a.y[i] = a.x[i];
}
LF_ONE(largest_to, largest_of, Kept)

// kernels.Remember: a thread has an operand's history. Most, next and at are places of a.y.
struct Remember {
  const float* most;
  float* y;
  const double* clip;
  i64 history, of, next, at, overflow;
};

LF_DEV void remember(const Remember& a) {
  if (a.clip[a.overflow] != 0) return;
  i64 at = (i64)a.y[a.next] % a.history, i = threadIdx.x;
  __syncthreads();
  if (i < 3) {
    float *h = a.y + a.at + i * a.history, m = a.most[i];
    h[at] = m - m == 0 ? m : a.y[a.of + i];
    float most = 0;
    for (i64 k = 0; k < a.history; k++) most = fmaxf(most, h[k]);
    a.y[a.of + i] = most;
  }
  if (i == 0) a.y[a.next] = (float)((at + 1) % a.history);
}
LF_ONE(delayed_scales, remember, Remember)
