package torch

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/lfactor/lfactor/stages/checkpoint"
)

// universal reads a folder for each parameter.
func (z *zero) universal(out map[string]*flatSource) error {
	entries, err := os.ReadDir(filepath.Join(z.dir, universalDir))
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		for _, kind := range []string{"fp32", "exp_avg", "exp_avg_sq", "step"} {
			name := filepath.Join(universalDir, e.Name(), kind+".pt")
			if _, err := os.Stat(filepath.Join(z.dir, name)); kind != "fp32" && errors.Is(err, os.ErrNotExist) {
				continue
			}
			if kind == "step" {
				if err := z.stepOf(name); err != nil {
					return err
				}
				continue
			}
			a, d, err := z.archive(name)
			if err != nil {
				return err
			}
			t, ok, err := a.view(d.get("param"))
			if err != nil || !ok {
				return a.fault(e.Name(), fmt.Sprintf("has no param (%v)", err))
			}
			p := zeroParam{name: e.Name(), shape: t.shape, count: t.size() / int64(t.dtype.Bits()/8)}
			if t.dtype != checkpoint.F32 || !t.dense(whole1(checkpoint.Info{Shape: t.shape})[0].box) {
				return a.fault(e.Name(), "is no dense tensor of float32")
			}
			line := *t
			line.shape, line.stride = []int{int(p.count)}, []int64{1}
			if err := out[kind].put(z, p, []segment{{&line, a, 0, p.count}}, kind); err != nil {
				return err
			}
		}
	}
	if _, err := os.Stat(filepath.Join(z.dir, modelStates)); errors.Is(err, os.ErrNotExist) {
		return nil // it says only how far the training was
	}
	a, d, err := z.archive(modelStates)
	if err != nil {
		return err
	}
	if n, ok := a.number(d.get("global_steps")); ok {
		z.steps = int64(n)
	}
	return nil
}

// stepOf reads a step.pt, a number of updates, which has to be the same everywhere.
func (z *zero) stepOf(name string) error {
	path := filepath.Join(z.dir, name)
	a, f, err := opened(path, known)
	if err != nil {
		return err
	}
	defer f.Close()
	n, ok := a.number(a.value)
	if !ok || n < 0 || n > 1<<53 || z.updates > 0 && z.updates != int64(n) {
		return a.fault("", fmt.Sprintf("is no number of updates, or not the %d of other parameters", z.updates))
	}
	z.updates = int64(n)
	return nil
}
