package run

import (
	"errors"
	"runtime"

	"github.com/lfactor/lfactor/actors/host"
	"github.com/lfactor/lfactor/kernels"
)

// encodes reports whether a rank is one of the encoder's own.
func (r *Run) encodes(rank int) bool { return rank >= r.layout.Design.Mesh.Size() }

// device is the name of a rank's device.
func (r *Run) device(rank int) string {
	if e := r.cfg.Run.Plan.Encoder.Device; r.encodes(rank) && e != "same" {
		return e
	}
	return r.cfg.Run.Device
}

// joins tells whether ranks of all processes are on devices that a library joins: not on one that all share,
// and not where other processes do not know which devices auto has found.
func joins(device string) bool { return device == "cuda" }

// backends opens a backend for each of this process's ranks, which share its cores; the second result closes them.
func backends(r *Run, ranks []int) (func(rank int) kernels.Backend, func(), error) {
	c := r.cfg
	n := c.Run.Plan.Threads
	if n == 0 {
		n = max(1, runtime.GOMAXPROCS(0)/max(1, c.Run.Plan.Procs))
	}
	of, closeAll, err := host.OpenEach(r.device, ranks,
		kernels.Options{Threads: n, Strict: c.Run.Strict, Dir: c.Run.Log.Dir})
	var cannot *host.OpenError
	if errors.As(err, &cannot) {
		key := "device"
		if r.encodes(cannot.Rank) && c.Run.Plan.Encoder.Device != "same" {
			key = "plan.encoder.device"
		}
		return nil, nil, c.Fault(key, err.Error(), "set "+key+": cpu")
	}
	if err != nil {
		return nil, nil, err
	}
	w := r.watchAiling(of, ranks)
	return of, func() { w.end(); closeAll() }, nil
}
