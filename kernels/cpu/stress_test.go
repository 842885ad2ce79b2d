package cpu

import (
	"bytes"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// Tiles and vector registers survive preemption, garbage collection and other goroutines' tiles: results stay bit-identical.
func TestRegistersSurviveTheRuntime(t *testing.T) {
	x, w := filled(tensor.BF16, 256, 512), filled(tensor.BF16, 512, 512)
	one := newBackend(levels()[0], 1)
	want := tensor.Make(tensor.BF16, 256, 512)
	one.Run(&kernels.Call{Op: kernels.Linear, In: []*tensor.Tensor{x, w}, Out: []*tensor.Tensor{want}})
	one.Close()
	var stop, bad atomic.Bool
	var collector, work sync.WaitGroup
	collector.Go(func() {
		for !stop.Load() {
			runtime.GC()
		}
	})
	for range 4 {
		work.Go(func() {
			b := newBackend(levels()[0], 2)
			defer b.Close()
			y := tensor.Make(tensor.BF16, 256, 512)
			for range 60 {
				b.Run(&kernels.Call{Op: kernels.Linear, In: []*tensor.Tensor{x, w}, Out: []*tensor.Tensor{y}})
				if !bytes.Equal(y.Bytes(), want.Bytes()) {
					bad.Store(true)
				}
			}
		})
	}
	work.Wait()
	stop.Store(true)
	collector.Wait()
	require.False(t, bad.Load())
}
