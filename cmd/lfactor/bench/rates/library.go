package rates

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/lfactor/lfactor/configs/exit"
)

// Library is the best that a known library reaches in products of float32 on this machine: numpy's matmul.
type Library struct {
	Name  string  `json:"name"`
	Flops float64 `json:"flops"` // a second, of the fastest of its products
	// the step's floor at that rate instead of the peak of multiply-adds, and its share of the median step
	Floor   float64 `json:"floor_s,omitempty"`
	OfFloor float64 `json:"of_floor,omitempty"`
	Why     string  `json:"why,omitempty"` // it was not measured
}

// libraryScript times numpy's products of linear layers, forward, gradient of the input, gradient of the weights, a
// tenth of a second each, and prints the best rate and what numpy computes them with.
const libraryScript = `
import json, time
import numpy as np
best = 0.0
for n, k in ((512, 512), (1408, 512), (512, 1408), (2048, 512)):
    x, w, y = (np.random.rand(*s).astype(np.float32) for s in ((2048, k), (n, k), (2048, n)))
    for a, b in ((x, w.T), (y, w), (y.T, x)):
        c = np.empty((a.shape[0], b.shape[1]), np.float32)
        end = time.perf_counter() + 0.1
        while time.perf_counter() < end:
            at = time.perf_counter()
            np.matmul(a, b, out=c)
            best = max(best, 2 * 2048 * n * k / (time.perf_counter() - at))
try:
    d = np.show_config(mode="dicts")["Build Dependencies"]["blas"]
    blas = " with %s %s" % (d["name"], d["version"])
except Exception:
    blas = ""
print(json.dumps({"name": "numpy " + np.__version__ + blas, "flops": best}))
`

// libraryTime bounds the measurement, numpy's start included.
const libraryTime = time.Minute

// MeasureLibrary times numpy in the given Python, with so many threads. Where LFACTOR_CPU holds this program to AVX2,
// OpenBLAS is held to it too. A Python that was asked for by name must have numpy; else Why says what is missing.
func MeasureLibrary(python string, asked bool, threads int) (*Library, error) {
	ctx, cancel := context.WithTimeout(context.Background(), libraryTime)
	defer cancel()
	c := exec.CommandContext(ctx, python, "-c", libraryScript)
	n := fmt.Sprint(threads)
	c.Env = append(os.Environ(), "OPENBLAS_NUM_THREADS="+n, "OMP_NUM_THREADS="+n, "MKL_NUM_THREADS="+n)
	if os.Getenv("LFACTOR_CPU") == "avx2" {
		c.Env = append(c.Env, "OPENBLAS_CORETYPE=Haswell")
	}
	var out, bad bytes.Buffer
	c.Stdout, c.Stderr = &out, &bad
	err := c.Run()
	x := &Library{}
	if err == nil {
		if err = json.Unmarshal(out.Bytes(), x); err == nil && x.Flops > 0 {
			return x, nil
		}
		err = fmt.Errorf("it printed %q", out.String())
	}
	lines := strings.Split(strings.TrimSpace(bad.String()), "\n")
	if last := lines[len(lines)-1]; last != "" {
		err = fmt.Errorf("%s", last)
	}
	if asked {
		return nil, exit.Usagef("--numpy %s: numpy's products cannot be timed there: %v", python, err)
	}
	return &Library{Why: fmt.Sprintf("%s: %v", python, err)}, nil
}

// under sets what the library's rate means for a step.
func (x *Library) under(f *floor, median float64) {
	if x.Flops > 0 {
		x.Floor = (f.Products+f.Attention)/x.Flops + f.Bytes/f.Memory
		x.OfFloor = x.Floor / median
	}
}
