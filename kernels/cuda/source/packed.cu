#include "lf.cuh"

// Weights in few bits: matrices that lie packed, as kernels/packing.go has them, and weights that are rounded while they learn.
struct Packed {
  const u32* w; // rows of codes, then scales, then zeros
  void* y;
  i64 rows, width, words, codes, group, groups, form, four, zeros;
};

enum { kNF4 = 1, kFP4, kInt4, kInt8, kFP8, kE2M1 };
__device__ static const float lf_nf4[16] = {
    -1.0f, -0.696192801f, -0.525073051f, -0.394917488f, -0.284441382f, -0.18477343f, -0.0910500363f, 0.0f,
    0.0795802996f, 0.160930201f, 0.246112302f, 0.337915242f, 0.440709829f, 0.562617004f, 0.722956836f, 1.0f,
};
__device__ static const float lf_fp4[16] = {
    0.0f, 0.00520833349f, 0.666666687f, 1.0f, 0.333333343f, 0.5f, 0.166666672f, 0.25f,
    0.0f, -0.00520833349f, -0.666666687f, -1.0f, -0.333333343f, -0.5f, -0.166666672f, -0.25f,
};
__device__ static const float lf_e2m1[16] = {
    0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f,
    0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f,
};

LF_DEV float number_of(i64 form, u32 code) {
  switch (form) {
  case kNF4: return lf_nf4[code];
  case kFP4: return lf_fp4[code];
  case kE2M1: return lf_e2m1[code];
  case kFP8: {
    u32 e = code >> 3 & 15, m = code & 7;
    float x = (code & 127) == 127 ? NAN : e ? of_bits((e + 120) << 23 | m << 20) : (float)m * 0x1p-9f;
    return code >> 7 ? -x : x;
  }
  }
  return (float)code;
}

// A thread has the columns of a word of codes.
template <class T> LF_DEV void unpack(const Packed& a) {
  i64 each = a.four ? 8 : 4;
  LF_EACH(i, a.rows * a.codes) {
    const u32* row = a.w + i / a.codes * a.words;
    const float* scales = (const float*)(row + a.codes);
    const u8* zeros = (const u8*)(row + a.codes + a.groups);
    i64 from = i % a.codes * each, n = a.width - from < each ? a.width - from : each;
    u32 word = row[i % a.codes];
    for (i64 c = 0; c < n; c++) {
      i64 g = (from + c) / a.group;
      u32 code = a.four ? word >> 4 * c & 15 : word >> 8 * c & 255;
      st<T>(a.y, i / a.codes * a.width + from + c, (number_of(a.form, code) - (a.zeros ? (float)zeros[g] : 0)) * scales[g]);
    }
  }
}
LF_TYPED(unpack, Packed)

struct Fake {
  const void* w;
  const float* dy;
  void* y;
  i64 width, group, groups, bits;
};

// The scale of the group that a block of threads has: no number where one of the group is none.
template <class T> LF_DEV float fake_scale(const Fake& a, i64 from, i64 n) {
  float m = 0, bad = 0;
  LF_ROW(i, n) {
    float x = fabsf(ld<T>(a.w, from + i));
    if (x != x) bad = 1;
    m = fmaxf(m, x);
  }
  m = block_max(m);
  if (block_max(bad) != 0) return NAN;
  m /= (float)((1ll << a.bits) - 1) / 2;
  return m > 0x1p-23f ? m : 0x1p-23f;
}
LF_DEV i64 fake_group(const Fake& a, i64* n) {
  i64 row = blockIdx.x / a.groups, g = blockIdx.x % a.groups * a.group;
  *n = a.width - g < a.group ? a.width - g : a.group;
  return row * a.width + g;
}

template <class T> LF_DEV void fake_quant(const Fake& a) {
  i64 n, from = fake_group(a, &n);
  float scale = fake_scale<T>(a, from, n), by = 1 / scale, least = -(float)(1ll << (a.bits - 1));
  LF_ROW(i, n) {
    float v = rintf(ld<T>(a.w, from + i) * by);
    if (v < least) v = least;
    if (v > -least - 1) v = -least - 1;
    st<T>(a.y, from + i, v * scale);
  }
}
LF_TYPED(fake_quant, Fake)

template <class T> LF_DEV void fake_quant_dw(const Fake& a) {
  i64 n, from = fake_group(a, &n);
  float by = 1 / fake_scale<T>(a, from, n), least = -(float)(1ll << (a.bits - 1));
  LF_ROW(i, n) {
    float v = rintf(ld<T>(a.w, from + i) * by), dy = a.dy[from + i];
    ((float*)a.y)[from + i] = v != v ? v : v < least || v > -least - 1 ? dy * 0 : dy;
  }
}
LF_TYPED(fake_quant_dw, Fake)
