package profiler

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"

	"github.com/lfactor/lfactor/kernels"
)

// peaks are the rates of one machine, all threads together, in FLOP/s.
type peaks struct {
	F32  float64 `json:"f32"`
	BF16 float64 `json:"bf16"`
}

// PeakOnce gives what this machine's instructions can do at most, all threads together, in FLOP/s: measured
// once a process as `lfactor bench peak` does, in registers on one thread, times the threads. Whatever else
// runs on the machine can only lower a measurement, so the highest that the machine has ever given is kept
// in the user's cache directory.
var PeakOnce = sync.OnceValues(func() (f32, bf16 float64) {
	b := kernels.OpenProber(1)
	defer kernels.Close(b)
	now, threads := b.Peaks(), float64(runtime.GOMAXPROCS(0))
	p := peaks{now.MultiplyAdd * threads, max(now.Tiles, now.MultiplyAdd) * threads}
	if dir, err := os.UserCacheDir(); err == nil {
		p = keep(filepath.Join(dir, "lfactor", "peaks.json"), processor(b.Name()), p)
	}
	return p.F32, p.BF16
})

// PeakFlops is the denominator of mfu for a training precision.
func PeakFlops(precision string) float64 {
	f32, bf16 := PeakOnce()
	if precision == "bf16" {
		return bf16
	}
	return f32
}

// DevicePeak is the denominator of mfu where ranks compute on a device: what as many of them as there are ranks can
// do by their maker, 0 where that is not known. On the processor it is PeakFlops.
func DevicePeak(device, precision string, ranks int) float64 {
	if kernels.OnProcessor(device) {
		return PeakFlops(precision)
	}
	p := kernels.DeviceRates(device)
	if precision == "fp32" {
		return p.TeamMultiplyAdd * float64(ranks)
	}
	return p.TeamTiles * float64(ranks)
}

// processor names this machine: its instructions, its processor's model and how many threads run.
func processor(level string) string {
	model := runtime.GOARCH
	if text, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(text)) {
			if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
				model = strings.TrimSpace(value)
				break
			}
		}
	}
	return fmt.Sprintf("%s, %s, %d threads", model, level, runtime.GOMAXPROCS(0))
}

// keep raises what a file knows of a machine to a new measurement and returns the higher rates. A file that
// cannot be read or written costs nothing but the memory of earlier measurements.
func keep(file, machine string, p peaks) peaks {
	all := map[string]peaks{}
	if text, err := os.ReadFile(file); err == nil {
		_ = json.Unmarshal(text, &all) // a damaged file is written anew
	}
	old := all[machine]
	p = peaks{max(p.F32, old.F32), max(p.BF16, old.BF16)}
	if p == old {
		return p
	}
	if all == nil {
		all = map[string]peaks{}
	}
	all[machine] = p
	text, err := json.MarshalIndent(all, "", "  ")
	if err != nil || os.MkdirAll(filepath.Dir(file), 0o700) != nil {
		return p
	}
	part := fmt.Sprintf("%s.%d", file, os.Getpid())
	if os.WriteFile(part, append(text, '\n'), 0o600) != nil || os.Rename(part, file) != nil {
		_ = os.Remove(part) // the next run measures again
	}
	return p
}
