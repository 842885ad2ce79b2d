/* A plug-in of one operation, on a device that is the processor itself: what is asked for is done at once, so events say nothing.
 *   cc -O2 -shared -fPIC -o scale.so tutorial.c && LFACTOR_XPU=$PWD/scale.so lfactor train run.yaml device=xpu                   */
#include "lfx.h"
#include <stdlib.h>
#include <string.h>

static const char *wrong = "";
static int event;

static lfx_status info(int index, lfx_info *i) {
  if (index != 0) return wrong = "there is one device", LFX_BAD_ARGUMENT;
  i->count = 1;
  strcpy(i->name, "tutorial");
  i->memory = (uint64_t)4 << 30;
  i->align = 64;
  return LFX_OK;
}
static lfx_status open_device(int index, lfx_device **d) { return *d = (lfx_device *)&event, index ? LFX_BAD_ARGUMENT : LFX_OK; }
static void close_device(lfx_device *d) {}
static const char *error(void) { return wrong; }
static lfx_status alloc(lfx_device *d, uint64_t n, uint64_t *mem) {
  *mem = (uint64_t)(uintptr_t)aligned_alloc(64, (n + 63) / 64 * 64);
  return *mem ? LFX_OK : LFX_NO_MEMORY;
}
static lfx_status free_memory(lfx_device *d, uint64_t mem) { return free((void *)(uintptr_t)mem), LFX_OK; }
static lfx_status host_alloc(lfx_device *d, uint64_t n, void **p) { return (*p = malloc(n)) ? LFX_OK : LFX_NO_MEMORY; }
static lfx_status host_free(lfx_device *d, void *p) { return free(p), LFX_OK; }
static lfx_status copy(lfx_device *d, uint64_t to, uint64_t from, uint64_t n, lfx_direction way) {
  return memmove((void *)(uintptr_t)to, (void *)(uintptr_t)from, n), LFX_OK;
}
static lfx_status clear(lfx_device *d, uint64_t mem, int v, uint64_t n) { return memset((void *)(uintptr_t)mem, v, n), LFX_OK; }
static lfx_status record(lfx_device *d, lfx_event **e) { return *e = (lfx_event *)&event, LFX_OK; }
static lfx_status await(lfx_device *d, lfx_event *e) { return LFX_OK; }
static lfx_status wait_event(lfx_event *e) { return LFX_OK; }
static void drop(lfx_event *e) {}

enum { SCALE = 1 }; /* our number of the operation: any but 0 */
static uint32_t op(lfx_device *d, const char *name, const char *signature) {
  return !strcmp(name, "scale") && !strcmp(signature, "x[...]A -> y[...]A") ? SCALE : 0;
}
static lfx_status run(lfx_device *d, const lfx_call *c) {
  if (c->op != SCALE || c->in[0]->dtype != LFX_F32) return LFX_UNSUPPORTED; /* then it runs on the processor */
  const float *x = (const float *)(uintptr_t)c->in[0]->mem;
  float *y = (float *)(uintptr_t)c->out[0]->mem;
  int64_t n = 1;
  for (uint32_t i = 0; i < c->in[0]->rank; i++) n *= c->in[0]->dim[i];
  for (int64_t i = 0; i < n; i++) y[i] = (float)c->f[0] * x[i];
  return LFX_OK;
}

static const lfx_api table = {sizeof table, LFX_MAJOR, LFX_MINOR, info, open_device, close_device, error, alloc, free_memory,
  host_alloc, host_free, copy, clear, record, await, wait_event, drop, op, run};
const lfx_api *lfx_get(uint32_t major) { return major == LFX_MAJOR ? &table : 0; }
