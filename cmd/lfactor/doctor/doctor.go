// Package doctor is the verb of that name: it parses, calls and prints.
package doctor

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/lfactor/lfactor/actors/profiler"
	"github.com/lfactor/lfactor/cmd/lfactor/cli"
	"github.com/lfactor/lfactor/configs/exit"
	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/topology/machine"
)

// Command is lfactor doctor: a check of this machine.
func Command() *cobra.Command {
	return &cobra.Command{Use: "doctor", Short: "Check this machine: processor, speed, memory, disk, sockets",
		Args: cobra.NoArgs, RunE: doctor}
}

// check is one line of the doctor's.
type check struct {
	What string `json:"what"`
	OK   bool   `json:"ok"`
	Warn bool   `json:"warn,omitempty"` // training goes, and somebody should look
	Text string `json:"text"`
}

// doctor checks what training needs of this machine and prints a line for each; a failed check makes the exit code 1.
func doctor(c *cobra.Command, _ []string) error {
	var all []check
	ok := true
	line := func(what string, good bool, format string, a ...any) {
		all, ok = append(all, check{What: what, OK: good, Text: fmt.Sprintf(format, a...)}), ok && good
	}
	b := kernels.OpenProber(1)
	line("kernels", true, "%s on %s/%s, %d cores", b.Name(), runtime.GOOS, runtime.GOARCH, runtime.NumCPU())
	kernels.Close(b)
	f32, bf16 := profiler.PeakOnce()
	line("speed", f32 > 1e9, "%.0f GFLOP/s fp32, %.0f bf16 (multiply-adds in registers, all threads; the best of "+
		"this machine so far)", f32/1e9, bf16/1e9)
	if total := machine.MemoryLimit("/"); total > 0 {
		line("memory", total > 1<<30, "%s", tensor.Bytes(total))
	}
	for _, d := range kernels.Describe() {
		text, warns := strings.CutPrefix(d, kernels.Warning)
		line("device", true, "%s", text) // to be without is no fault
		all[len(all)-1].Warn = warns
	}
	dir, err := os.MkdirTemp(".", ".lfactor-doctor-")
	line("disk", err == nil, "the current directory can be written")
	if err == nil {
		defer os.RemoveAll(dir)
		rate, err := diskRate(filepath.Join(dir, "probe"))
		line("disk", err == nil, "%.0f MB/s durable writes", rate)
	}
	err = cli.Emit(c, all, func(w io.Writer) {
		for _, x := range all {
			mark := "✓"
			switch {
			case !x.OK:
				mark = "✗"
			case x.Warn:
				mark = "!"
			}
			fmt.Fprintf(w, "%s %-8s %s\n", mark, x.What, x.Text)
		}
	})
	if err == nil && !ok {
		err = exit.With(fmt.Errorf("this machine cannot train as it is; see the lines marked ✗"), exit.Failed)
	}
	return err
}

// diskRate writes and syncs 64 MiB.
func diskRate(path string) (float64, error) {
	f, err := os.Create(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	began := time.Now()
	block := make([]byte, 1<<20)
	for range 64 {
		if _, err := f.Write(block); err != nil {
			return 0, err
		}
	}
	if err := f.Sync(); err != nil {
		return 0, err
	}
	return 64 * 1.048576 / time.Since(began).Seconds(), nil
}
