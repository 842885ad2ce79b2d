/* A plug-in that was written from docs/devices.md, lfx.h and the contracts in kernels/ops_*.go alone, as a vendor would: seven
 * operations in float32 and bfloat16, on one device that does its work at once. The suite holds it to their definitions:
 *   cc -O2 -ffp-contract=off -shared -fPIC -o written.so written.c -lm
 *   LFACTOR_XPU=$PWD/written.so go test -tags xpu ./kernels/xpu -run TestPlugin -v                                               */
#include "lfx.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static _Thread_local char why[64];
static int here; /* stands for the device, and for every event */

static lfx_status fails(lfx_status s, const char *text) { return snprintf(why, sizeof why, "%s", text), s; }

static lfx_status info(int index, lfx_info *i) {
  if (index) return fails(LFX_BAD_ARGUMENT, "there is one device");
  i->count = 1, i->memory = (uint64_t)2 << 30, i->align = 128, i->reserved = 0;
  snprintf(i->name, sizeof i->name, "written");
  return LFX_OK;
}
static lfx_status begin(int index, lfx_device **d) {
  if (index) return fails(LFX_BAD_ARGUMENT, "there is one device");
  return *d = (lfx_device *)&here, LFX_OK;
}
static void end(lfx_device *d) { (void)d; }
static const char *error(void) { return why; }
static lfx_status get(lfx_device *d, uint64_t n, uint64_t *mem) {
  (void)d;
  void *p = aligned_alloc(128, (n + 127) & ~(uint64_t)127);
  if (!p) return fails(LFX_NO_MEMORY, "memory is full");
  return *mem = (uint64_t)(uintptr_t)p, LFX_OK;
}
static lfx_status give(lfx_device *d, uint64_t mem) { return (void)d, free((void *)(uintptr_t)mem), LFX_OK; }
static lfx_status host_get(lfx_device *d, uint64_t n, void **p) {
  uint64_t mem;
  lfx_status s = get(d, n, &mem);
  if (s == LFX_OK) *p = (void *)(uintptr_t)mem;
  return s;
}
static lfx_status host_give(lfx_device *d, void *p) { return (void)d, free(p), LFX_OK; }
static lfx_status copy(lfx_device *d, uint64_t to, uint64_t from, uint64_t n, lfx_direction way) {
  return (void)d, (void)way, memmove((void *)(uintptr_t)to, (void *)(uintptr_t)from, n), LFX_OK;
}
static lfx_status set(lfx_device *d, uint64_t at, int v, uint64_t n) { return (void)d, memset((void *)(uintptr_t)at, v, n), LFX_OK; }
static lfx_status record(lfx_device *d, lfx_event **e) { return (void)d, *e = (lfx_event *)&here, LFX_OK; }
static lfx_status await(lfx_device *d, lfx_event *e) { return (void)d, (void)e, LFX_OK; }
static lfx_status wait_for(lfx_event *e) { return (void)e, LFX_OK; }
static void drop(lfx_event *e) { (void)e; }

/* Elements as floats. */
static int64_t length(const lfx_tensor *t) {
  int64_t n = 1;
  for (uint32_t i = 0; i < t->rank; i++) n *= t->dim[i];
  return n;
}
static float load(const lfx_tensor *t, int64_t i) {
  const void *p = (const void *)(uintptr_t)t->mem;
  if (t->dtype == LFX_F32) return ((const float *)p)[i];
  uint32_t u = (uint32_t)((const uint16_t *)p)[i] << 16;
  float f;
  memcpy(&f, &u, 4);
  return f;
}
static void store(const lfx_tensor *t, int64_t i, float f) {
  void *p = (void *)(uintptr_t)t->mem;
  uint32_t u;
  if (t->dtype == LFX_F32) { ((float *)p)[i] = f; return; }
  memcpy(&u, &f, 4);
  ((uint16_t *)p)[i] = f != f ? (uint16_t)(u >> 16 | 0x40) : (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16); /* to nearest even */
}

static void sum(const lfx_call *c) {
  for (int64_t i = 0, n = length(c->out[0]); i < n; i++) {
    float s = load(c->in[0], i);
    for (uint32_t j = 1; j < c->nin; j++) s += load(c->in[j], i);
    store(c->out[0], i, s);
  }
}
static void mul(const lfx_call *c) {
  for (int64_t i = 0, n = length(c->out[0]); i < n; i++) store(c->out[0], i, load(c->in[0], i) * load(c->in[1], i));
}
static void scale(const lfx_call *c) {
  for (int64_t i = 0, n = length(c->out[0]); i < n; i++) store(c->out[0], i, (float)c->f[0] * load(c->in[0], i));
}
static void fill(const lfx_call *c) {
  for (int64_t i = 0, n = length(c->out[0]); i < n; i++) store(c->out[0], i, (float)c->f[0]);
}
static void swiglu(const lfx_call *c) {
  for (int64_t i = 0, n = length(c->out[0]); i < n; i++) {
    float g = load(c->in[0], i);
    store(c->out[0], i, g / (1 + expf(-g)) * load(c->in[1], i));
  }
}
static void col_sum(const lfx_call *c) {
  int64_t w = c->out[0]->dim[0], rows = w ? length(c->in[0]) / w : 0;
  float *y = (float *)(uintptr_t)c->out[0]->mem;
  for (int64_t j = 0; j < w; j++) {
    float s = 0;
    for (int64_t i = 0; i < rows; i++) s += load(c->in[0], i * w + j);
    y[j] = c->i[0] ? y[j] + s : s;
  }
}
static void rmsnorm(const lfx_call *c) {
  int64_t d = c->in[1]->dim[0], rows = length(c->out[1]);
  for (int64_t i = 0; i < rows; i++) {
    float s = 0;
    for (int64_t j = 0; j < d; j++) s += load(c->in[0], i * d + j) * load(c->in[0], i * d + j);
    float r = 1 / sqrtf(s / (float)d + (float)c->f[0]);
    store(c->out[1], i, r);
    for (int64_t j = 0; j < d; j++) store(c->out[0], i * d + j, load(c->in[0], i * d + j) * r * (load(c->in[1], j) + (float)c->f[1]));
  }
}

static const struct {
  const char *name, *signature;
  void (*run)(const lfx_call *);
} have[] = {
  {"sum", "x0[...]T ... -> y[...]T", sum},
  {"mul", "a[...]A b[...]A -> y[...]A", mul},
  {"scale", "x[...]A -> y[...]A", scale},
  {"fill", "-> y[...]T", fill},
  {"swiglu", "g[...]A u[...]A -> y[...]A", swiglu},
  {"col_sum", "dy[...,n]A -> db[n]f32", col_sum},
  {"rmsnorm", "x[...,d]A w[d]A -> y[...,d]A rstd[...]f32", rmsnorm},
};
enum { HAVE = sizeof have / sizeof *have };

static uint32_t op(lfx_device *d, const char *name, const char *signature) {
  (void)d;
  for (uint32_t i = 0; i < HAVE; i++)
    if (!strcmp(have[i].name, name) && !strcmp(have[i].signature, signature)) return i + 1;
  return 0;
}
static lfx_status run(lfx_device *d, const lfx_call *c) {
  (void)d;
  if (c->op < 1 || c->op > HAVE) return fails(LFX_BAD_ARGUMENT, "no such operation");
  for (uint32_t i = 0; i < c->nin + c->nout; i++) {
    const lfx_tensor *t = i < c->nin ? c->in[i] : c->out[i - c->nin];
    if (t->dtype != LFX_F32 && t->dtype != LFX_BF16) return LFX_UNSUPPORTED; /* then the processor does it */
  }
  return have[c->op - 1].run(c), LFX_OK;
}

static const lfx_api table = {sizeof table, LFX_MAJOR, LFX_MINOR, info, begin, end, error, get, give,
  host_get, host_give, copy, set, record, await, wait_for, drop, op, run};
const lfx_api *lfx_get(uint32_t major) { return major == LFX_MAJOR ? &table : 0; }
