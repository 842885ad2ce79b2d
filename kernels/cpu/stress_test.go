package cpu

import (
	"bytes"
	"io"
	"runtime"
	"runtime/debug"
	"runtime/pprof"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// stressCalls are products and attention in both precisions, forward and backward: whatever keeps tiles,
// masks or many registers live for long.
func stressCalls() (l []*kernels.Call) {
	cu := tensor.Of(tensor.I32, []int32{0, 100, 256}, 3)
	off := tensor.Of(tensor.I32, []int32{0, 3, 30, 256}, 4)
	for _, a := range []tensor.DType{tensor.F32, tensor.BF16} {
		act := func(shape ...int) *tensor.Tensor { return filled(a, shape...) }
		q := func() *tensor.Tensor { return act(256, 2, 64) }
		at := kernels.Attr{I: [4]int{1}, F: [2]float64{.1}}
		l = append(l, &kernels.Call{Op: kernels.Linear, In: ts{act(256, 512), act(384, 512)},
			Out: ts{act(256, 384)}},
			&kernels.Call{Op: kernels.LinearDX, In: ts{act(256, 384), act(384, 256)}, Out: ts{act(256, 256)}},
			&kernels.Call{Op: kernels.LinearDW, In: ts{act(256, 384), act(256, 128)},
				Out: ts{tensor.Make(tensor.F32, 384, 128)}},
			&kernels.Call{Op: kernels.GroupedLinear, In: ts{act(256, 128), act(3, 96, 128), off},
				Out: ts{act(256, 96)}},
			&kernels.Call{Op: kernels.Attention, In: ts{q(), q(), q(), cu, cu},
				Out: ts{q(), filled(tensor.F32, 256, 2)}, Attr: at},
			&kernels.Call{Op: kernels.AttentionBwd, In: ts{q(), q(), q(), q(), q(),
				filled(tensor.F32, 256, 2), cu, cu}, Out: ts{q(), q(), q()}, Attr: at},
			&kernels.Call{Op: kernels.SwiGLU, In: ts{act(256, 384), act(256, 384)}, Out: ts{act(256, 384)}})
	}
	return l
}

// fresh is the call with outputs of its own.
func fresh(c *kernels.Call) *kernels.Call {
	f := *c
	f.Out = nil
	for _, o := range c.Out {
		f.Out = append(f.Out, tensor.Make(o.DType, o.Shape...))
	}
	return &f
}

// TestRegistersSurviveTheRuntime: results stay bit-identical under a storm of signals, profiling, garbage
// collection after nearly every allocation, and other goroutines' tiles. Each of these interrupts assembly
// and must give its registers back.
func TestRegistersSurviveTheRuntime(t *testing.T) {
	calls := stressCalls()
	want := make([]*kernels.Call, len(calls))
	one := newBackend(levels()[0], 1)
	for i, c := range calls {
		want[i] = fresh(c)
		one.Run(want[i])
	}
	one.Close()

	defer debug.SetGCPercent(debug.SetGCPercent(5))
	if err := pprof.StartCPUProfile(io.Discard); err == nil { // SIGPROF; not if the test itself is profiled
		defer pprof.StopCPUProfile()
	}
	var stop atomic.Bool
	var signals atomic.Int64
	var storm, work sync.WaitGroup
	storm.Go(func() {
		for !stop.Load() {
			runtime.GC() // stops the world: SIGURG to every thread
		}
	})
	storm.Go(func() { flood(&stop, &signals) })
	bad := make(chan string, 1)
	for range 3 {
		work.Go(func() {
			b := newBackend(levels()[0], 2)
			defer b.Close()
			// a busy machine has few signals a second
			for n := 0; n < 12 || floods && n < 500 && signals.Load() <= 1000; n++ {
				for i, c := range calls {
					got := fresh(c)
					b.Run(got)
					for j, o := range got.Out {
						if !bytes.Equal(o.Bytes(), want[i].Out[j].Bytes()) {
							select {
							case bad <- string(c.Op):
							default:
							}
						}
					}
				}
			}
		})
	}
	work.Wait()
	stop.Store(true)
	storm.Wait()
	select {
	case op := <-bad:
		t.Errorf("%s gave other bits while signals came", op)
	default:
	}
	if floods {
		require.Greater(t, signals.Load(), int64(1000), "the storm was none")
	}
}
