// The part of cublasLt that lfactor uses, in plain loops: what is passed and when, not how fast. An algorithm is a number; an odd one adds
// terms up from the last on, so that who runs another than was chosen gets other bits. Products of fewer than 4 terms have no algorithm.
#include "driver.h"
#include <cstddef>
#include <cstring>
#include <unistd.h>

namespace {

enum { kSuccess = 0, kNotInitialized = 1, kInvalid = 7, kNotSupported = 15 };
enum { kReal32 = 0, kReal16 = 2, kRealBF16 = 14 };

struct Desc { int compute, scale, turned[2], epilogue = 1; uint64_t bias = 0; };
struct Layout { int type; uint64_t rows, cols; int64_t ld; };
struct Wants { uint64_t workspace = 0; uint32_t reductions = 0xff, align[4] = {256, 256, 256, 256}; };
struct Algorithm { uint64_t data[8]; };
struct Result { Algorithm a; size_t workspace; int state; float waves; int reserved[4]; };
enum : uint64_t { kMark = 0x6c66616c676f };

float load(const char* p, int type, uint64_t i) {
  if (type == kReal32) return ((const float*)p)[i];
  uint32_t h = ((const uint16_t*)p)[i], u;
  float f;
  if (type == kRealBF16) {
    u = h << 16;
    memcpy(&f, &u, 4);
    return f;
  }
  _Float16 x;
  memcpy(&x, (const uint16_t*)p + i, 2);
  return (float)x;
}
void store(char* p, int type, uint64_t i, float f) {
  uint32_t u;
  memcpy(&u, &f, 4);
  if (type == kReal32) ((float*)p)[i] = f;
  else if (type == kRealBF16) ((uint16_t*)p)[i] = f != f ? (uint16_t)(u >> 16 | 0x40) : (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
  else {
    _Float16 x = (_Float16)f;
    memcpy((uint16_t*)p + i, &x, 2);
  }
}

} // namespace

#define API extern "C" int

extern "C" size_t cublasLtGetVersion() { return 130100; }
API cublasLtCreate(void** h) { *h = new int(1); return kSuccess; }
API cublasLtDestroy(void* h) { delete (int*)h; return kSuccess; }
API cublasLtMatmulDescCreate(Desc** d, int compute, int scale) {
  if (compute != 68 || scale != kReal32) return kInvalid;
  *d = new Desc{compute, scale, {0, 0}};
  return kSuccess;
}
API cublasLtMatmulDescSetAttribute(Desc* d, int what, const void* v, size_t n) {
  if ((what == 3 || what == 4) && n == 4) memcpy(&d->turned[what - 3], v, 4);
  else if (what == 7 && n == 4) memcpy(&d->epilogue, v, 4); // 1 is none, 4 adds a bias
  else if (what == 8 && n == 8) memcpy(&d->bias, v, 8);
  else return kInvalid;
  if (d->epilogue != 1 && d->epilogue != 4) return kInvalid;
  return kSuccess;
}
API cublasLtMatrixLayoutCreate(Layout** l, int type, uint64_t rows, uint64_t cols, int64_t ld) {
  if (ld < (int64_t)rows || (type != kReal32 && type != kReal16 && type != kRealBF16)) return kInvalid;
  *l = new Layout{type, rows, cols, ld};
  return kSuccess;
}
API cublasLtMatmulPreferenceCreate(Wants** w) { *w = new Wants; return kSuccess; }
API cublasLtMatmulPreferenceSetAttribute(Wants* w, int what, const void* v, size_t n) {
  if (what == 1 && n == 8) memcpy(&w->workspace, v, 8);
  else if (what == 3 && n == 4) memcpy(&w->reductions, v, 4);
  else if (what >= 5 && what <= 8 && n == 4) memcpy(&w->align[what - 5], v, 4);
  else return kInvalid;
  return kSuccess;
}
API cublasLtMatmulAlgoGetHeuristic(void* h, Desc* d, Layout* a, Layout* b, Layout* c, Layout* y, Wants* w, int most, Result* r, int* n) {
  *n = 0;
  if (!h || w->workspace == 0 || w->reductions != 0 || most < 1) return kInvalid;
  for (uint32_t x : w->align)
    if (x != 16) return kInvalid;
  uint64_t k = d->turned[0] ? a->rows : a->cols;
  if (k < 4) return kNotSupported;
  int has = (int)lf_setting("algorithms");
  *n = most < has ? most : has;
  for (int i = 0; i < *n; i++) {
    r[i] = {};
    r[i].a.data[0] = kMark, r[i].a.data[1] = (uint64_t)(lf_setting("algorithm") + i);
  }
  return kSuccess;
}
API cublasLtMatmul(void* h, Desc* d, const float* alpha, uint64_t a, Layout* la, uint64_t b, Layout* lb, const float* beta, uint64_t c, Layout* lc,
                   uint64_t y, Layout* ly, const Algorithm* algo, uint64_t work, size_t bytes, void* stream) {
  if (!h || algo->data[0] != kMark || a % 16 || b % 16 || y % 16 || c != y || work == 0 || bytes == 0) return kInvalid;
  uint64_t m = d->turned[0] ? la->cols : la->rows, k = d->turned[0] ? la->rows : la->cols;
  uint64_t kb = d->turned[1] ? lb->cols : lb->rows, n = d->turned[1] ? lb->rows : lb->cols;
  if (k != kb || ly->rows != m || ly->cols != n || la->type != lb->type) return kInvalid;
  if (d->epilogue == 4 && (!d->bias || d->bias % 16)) return kInvalid;
  Desc desc = *d;
  Layout A = *la, B = *lb, Y = *ly;
  float scale = *alpha, keep = *beta;
  bool backwards = algo->data[1] & 1;
  int64_t fast = lf_setting("fast"); // the one that takes no longer than it has to
  bool slow = fast >= 0 && algo->data[1] != (uint64_t)fast;
  return lf_push(stream, [=] {
    if (slow) usleep(3000);
    const char *pa = lf_bytes_at(a), *pb = lf_bytes_at(b);
    char* py = lf_bytes_at(y);
    for (uint64_t j = 0; j < n; j++)
      for (uint64_t i = 0; i < m; i++) {
        float s = 0;
        for (uint64_t t = 0; t < k; t++) {
          uint64_t l = backwards ? k - 1 - t : t;
          float u = load(pa, A.type, desc.turned[0] ? i * A.ld + l : l * A.ld + i);
          float v = load(pb, B.type, desc.turned[1] ? l * B.ld + j : j * B.ld + l);
          s = __builtin_fmaf(u, v, s);
        }
        uint64_t at = j * Y.ld + i;
        float bias = desc.epilogue == 4 ? load(lf_bytes_at(desc.bias), Y.type, i) : 0; // of the type of results
        store(py, Y.type, at, scale * s + bias + (keep != 0 ? keep * load(py, Y.type, at) : 0));
      }
    return 0;
  });
}
