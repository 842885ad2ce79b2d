/* A plug-in that trains a dense decoder: the operations of its layers, loss and optimizer in plain loops, on two devices that are
 * threads of the processor. Work is done in turn after run has returned, as real devices do it: who forgets an event sees what was
 * there before. reference_ops.h has the operations; a copy of this file is a place to begin from.
 *   cc -O2 -std=c11 -shared -fPIC -o reference.so reference.c -lm -lpthread                                                     */
#define _POSIX_C_SOURCE 200809L
#include "lfx.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "reference_ops.h"

enum { DEVICES = 2 };

struct lfx_event {
  pthread_mutex_t m;
  pthread_cond_t c;
  int reached, users; /* who holds it: lfactor, and work that is to come by */
};

/* One piece of work: a copy, a change of bytes, an event to reach or to wait for, or an operation. */
typedef struct work {
  struct work *next;
  enum { COPY, CLEAR, REACH, AWAIT, RUN } kind;
  uint64_t to, from, bytes;
  int value;
  lfx_event *event;
  call_copy call;
} work;

struct lfx_device {
  pthread_mutex_t m;
  pthread_cond_t more;
  pthread_t thread;
  work *first, **last;
  int ends;
};

static __thread char wrong[128];
static lfx_status fails(lfx_status s, const char *why) {
  snprintf(wrong, sizeof wrong, "%s", why);
  return s;
}

static void give_up(lfx_event *e) {
  pthread_mutex_lock(&e->m);
  int left = --e->users;
  pthread_mutex_unlock(&e->m);
  if (left > 0) return;
  pthread_cond_destroy(&e->c);
  pthread_mutex_destroy(&e->m);
  free(e);
}

static void do_work(work *w) {
  switch (w->kind) {
  case COPY: memmove((void *)(uintptr_t)w->to, (void *)(uintptr_t)w->from, w->bytes); break;
  case CLEAR: memset((void *)(uintptr_t)w->to, w->value, w->bytes); break;
  case RUN: operations[w->call.op - 1].run(&w->call); break;
  case REACH:
    pthread_mutex_lock(&w->event->m);
    w->event->reached = 1;
    pthread_cond_broadcast(&w->event->c);
    pthread_mutex_unlock(&w->event->m);
    give_up(w->event);
    break;
  case AWAIT:
    pthread_mutex_lock(&w->event->m);
    while (!w->event->reached) pthread_cond_wait(&w->event->c, &w->event->m);
    pthread_mutex_unlock(&w->event->m);
    give_up(w->event);
    break;
  }
}

static void *thread(void *p) {
  lfx_device *d = p;
  for (;;) {
    pthread_mutex_lock(&d->m);
    while (!d->first && !d->ends) pthread_cond_wait(&d->more, &d->m);
    work *w = d->first;
    if (w && !(d->first = w->next)) d->last = &d->first;
    pthread_mutex_unlock(&d->m);
    if (!w) return NULL;
    do_work(w);
    free(w);
  }
}

static lfx_status put(lfx_device *d, work in) {
  work *w = malloc(sizeof *w);
  if (!w) return fails(LFX_NO_MEMORY, "no memory for a piece of work");
  *w = in;
  w->next = NULL;
  pthread_mutex_lock(&d->m);
  *d->last = w;
  d->last = &w->next;
  pthread_cond_signal(&d->more);
  pthread_mutex_unlock(&d->m);
  return LFX_OK;
}

static lfx_status info(int index, lfx_info *i) {
  if (index < 0 || index >= DEVICES) return fails(LFX_BAD_ARGUMENT, "there are two devices");
  if (i->size < sizeof *i) return fails(LFX_BAD_ARGUMENT, "the answer has no room");
  i->count = DEVICES;
  strcpy(i->name, "reference");
  i->memory = (uint64_t)4 << 30;
  i->align = 64;
  i->reserved = 0;
  return LFX_OK;
}

static lfx_status open_device(int index, lfx_device **out) {
  lfx_device *d = index < 0 || index >= DEVICES ? NULL : calloc(1, sizeof *d);
  if (!d) return fails(LFX_BAD_ARGUMENT, "no such device");
  d->last = &d->first;
  pthread_mutex_init(&d->m, NULL);
  pthread_cond_init(&d->more, NULL);
  if (pthread_create(&d->thread, NULL, thread, d)) {
    free(d);
    return fails(LFX_NO_MEMORY, "no thread for the device");
  }
  *out = d;
  return LFX_OK;
}

static void close_device(lfx_device *d) {
  pthread_mutex_lock(&d->m);
  d->ends = 1;
  pthread_cond_signal(&d->more);
  pthread_mutex_unlock(&d->m);
  pthread_join(d->thread, NULL);
  pthread_cond_destroy(&d->more);
  pthread_mutex_destroy(&d->m);
  free(d);
}

static const char *error(void) { return wrong; }

static lfx_status alloc(lfx_device *d, uint64_t n, uint64_t *mem) {
  (void)d;
  void *p = aligned_alloc(256, (n + 255) / 256 * 256);
  if (!p) return fails(LFX_NO_MEMORY, "the processor's memory is full");
  memset(p, 0xff, n); /* not a number: what is read before it is written shows */
  *mem = (uint64_t)(uintptr_t)p;
  return LFX_OK;
}
static lfx_status free_memory(lfx_device *d, uint64_t mem) {
  (void)d;
  free((void *)(uintptr_t)mem);
  return LFX_OK;
}
static lfx_status host_alloc(lfx_device *d, uint64_t n, void **p) {
  (void)d;
  return (*p = malloc(n)) ? LFX_OK : fails(LFX_NO_MEMORY, "the processor's memory is full");
}
static lfx_status host_free(lfx_device *d, void *p) {
  (void)d;
  free(p);
  return LFX_OK;
}
static lfx_status copy(lfx_device *d, uint64_t to, uint64_t from, uint64_t n, lfx_direction way) {
  (void)way; /* all memory is the processor's */
  return put(d, (work){.kind = COPY, .to = to, .from = from, .bytes = n});
}
static lfx_status clear(lfx_device *d, uint64_t mem, int v, uint64_t n) {
  return put(d, (work){.kind = CLEAR, .to = mem, .bytes = n, .value = v});
}

static lfx_status record(lfx_device *d, lfx_event **out) {
  lfx_event *e = calloc(1, sizeof *e);
  if (!e) return fails(LFX_NO_MEMORY, "no memory for an event");
  pthread_mutex_init(&e->m, NULL);
  pthread_cond_init(&e->c, NULL);
  e->users = 2;
  *out = e;
  return put(d, (work){.kind = REACH, .event = e});
}
static lfx_status await(lfx_device *d, lfx_event *e) {
  pthread_mutex_lock(&e->m);
  e->users++;
  pthread_mutex_unlock(&e->m);
  return put(d, (work){.kind = AWAIT, .event = e});
}
static lfx_status wait_event(lfx_event *e) {
  pthread_mutex_lock(&e->m);
  while (!e->reached) pthread_cond_wait(&e->c, &e->m);
  pthread_mutex_unlock(&e->m);
  return LFX_OK;
}

static uint32_t op(lfx_device *d, const char *name, const char *signature) {
  (void)d;
  for (uint32_t i = 0; i < sizeof operations / sizeof *operations; i++) {
    if (!strcmp(name, operations[i].name) && !strcmp(signature, operations[i].signature)) return i + 1;
  }
  return 0;
}

/* What run is given is gone when it returns, so operands are copied; their contents are not. */
static lfx_status run(lfx_device *d, const lfx_call *c) {
  work w = {.kind = RUN};
  if (c->nin > MOST || c->nout > MOST || c->op == 0 || c->op > sizeof operations / sizeof *operations) return LFX_UNSUPPORTED;
  w.call.op = c->op;
  w.call.nin = c->nin;
  memcpy(w.call.i, c->i, sizeof w.call.i);
  memcpy(w.call.f, c->f, sizeof w.call.f);
  for (uint32_t i = 0; i < c->nin; i++) {
    if (c->in[i]) w.call.in[i] = *c->in[i];
  }
  for (uint32_t i = 0; i < c->nout; i++) {
    if (c->out[i]) w.call.out[i] = *c->out[i];
  }
  if (operations[c->op - 1].refuses && operations[c->op - 1].refuses(&w.call)) return LFX_UNSUPPORTED;
  return put(d, w);
}

static const lfx_api table = {sizeof table, LFX_MAJOR, LFX_MINOR, info, open_device, close_device, error, alloc, free_memory,
  host_alloc, host_free, copy, clear, record, await, wait_event, give_up, op, run};
const lfx_api *lfx_get(uint32_t major) { return major == LFX_MAJOR ? &table : NULL; }
