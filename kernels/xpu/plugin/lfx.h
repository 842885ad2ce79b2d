/* lfactor's table for accelerators, version 1. A plug-in is a shared library with one symbol, lfx_get, which returns a table of
 * functions. lfactor loads it in builds with the tag xpu, for device: xpu:PATH, or for device: xpu by the path in LFACTOR_XPU.
 * LFACTOR_XPU=PATH go test -tags xpu ./kernels/xpu -run TestPlugin holds its operations to their definitions.
 *
 * Rules. The table and every struct begin with their size in bytes; fields are only ever added behind the last. A table of another
 * major number is refused. A device has one sequence of work: functions that say "in turn" put work there and return; one thread at a
 * time calls a device's functions, but for wait, which may be called from several. Nothing is called back, and no memory changes owner:
 * what a pointer argument points to is read before the function returns, but for host memory of copies, which stays as it is until the
 * copy's turn is over. An operation is wanted by its name and by the text of its contract, so that a plug-in that was written for
 * another contract shows when it is opened and not at some step; kernels/ops_*.go have the contracts. */
#ifndef LFX_H
#define LFX_H
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif

#define LFX_MAJOR 1
#define LFX_MINOR 0

typedef enum { LFX_OK = 0, LFX_NO_MEMORY = 1, LFX_UNSUPPORTED = 2, LFX_BAD_ARGUMENT = 3, LFX_DEVICE_LOST = 4 } lfx_status;
typedef enum { LFX_F32, LFX_BF16, LFX_F16, LFX_F64, LFX_I32, LFX_I64, LFX_U8 } lfx_dtype;
typedef enum { LFX_TO_DEVICE, LFX_TO_HOST, LFX_ON_DEVICE } lfx_direction;

typedef struct lfx_device lfx_device; /* the plug-in's own */
typedef struct lfx_event lfx_event;

typedef struct {
  uint32_t size;
  uint32_t count;    /* devices that there are */
  char name[64];     /* of this one, with a zero behind it */
  uint64_t memory;   /* bytes */
  uint32_t align;    /* of what alloc gives: a power of two of at least 64 */
  uint32_t reserved; /* 0 */
} lfx_info;

typedef struct { /* dense, the last dimension's elements side by side */
  uint32_t size, dtype, rank, reserved;
  int64_t dim[8];
  uint64_t mem; /* address on the device */
} lfx_tensor;

typedef struct {
  uint32_t size;
  uint32_t op; /* the number that op gave */
  uint32_t nin, nout;
  const lfx_tensor *const *in, *const *out; /* NULL where an optional operand is absent */
  int64_t i[4];                             /* the attributes I and F of the contract */
  double f[2];
} lfx_call;

typedef struct {
  uint32_t size;
  uint16_t major, minor;
  /* Devices are counted from 0. error is what this thread's last failure was about. */
  lfx_status (*info)(int index, lfx_info *);
  lfx_status (*open)(int index, lfx_device **);
  void (*close)(lfx_device *); /* nothing is under way */
  const char *(*error)(void);
  /* lfactor takes few large pieces of memory and hands out parts itself. host_alloc is memory that the device can copy from by itself. */
  lfx_status (*alloc)(lfx_device *, uint64_t bytes, uint64_t *mem);
  lfx_status (*free)(lfx_device *, uint64_t mem);
  lfx_status (*host_alloc)(lfx_device *, uint64_t bytes, void **);
  lfx_status (*host_free)(lfx_device *, void *);
  /* In turn. Addresses of a device may also be another device's of this plug-in. */
  lfx_status (*copy)(lfx_device *, uint64_t to, uint64_t from, uint64_t bytes, lfx_direction);
  lfx_status (*clear)(lfx_device *, uint64_t mem, int value, uint64_t bytes);
  /* record makes an event behind all work so far; await holds later work back until an event, also of another device, is reached; wait
   * returns when it is reached, with what went wrong before it. */
  lfx_status (*record)(lfx_device *, lfx_event **);
  lfx_status (*await)(lfx_device *, lfx_event *);
  lfx_status (*wait)(lfx_event *);
  void (*drop)(lfx_event *); /* nobody waits any more */
  /* op is the plug-in's number of an operation, 0 if it does not have it. run is in turn; LFX_UNSUPPORTED says that the operation is not
   * there for these operands, and has done nothing. lfactor runs what is not there on the processor, with copies there and back. */
  uint32_t (*op)(lfx_device *, const char *name, const char *signature);
  lfx_status (*run)(lfx_device *, const lfx_call *);
} lfx_api;

const lfx_api *lfx_get(uint32_t major); /* NULL: this major number is not spoken */

#ifdef __cplusplus
}
#endif
#endif
