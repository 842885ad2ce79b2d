// Package cpu runs operations on the processor: blocked loops over a few primitives, shared among worker
// threads. The primitives are assembly for AVX-512 and AVX2, with AMX or AVX512_BF16 for products of
// bfloat16, and plain Go elsewhere.
//
// Results have the same bits on every call and with any number of threads, for a given level of instructions;
// levels agree with each other within kernels/kernelstest's tolerances. Subnormal float32 numbers may be taken as zero.
//
//lfvet:files a kind of kernel a file, as methods of types that all kinds share
package cpu

import (
	"fmt"
	"maps"
	"runtime"
	"sync"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// Backend runs one call at a time on a team of threads; Run may be called from several goroutines, which take turns.
type Backend struct {
	mu     sync.Mutex
	k      *isa
	team   *workerPool
	shared scratch
	kept   kept
}

// New returns a backend of that many threads; 0 stands for GOMAXPROCS. The environment variable LFACTOR_CPU, one of
// Levels, lowers the level of instructions for tests; a level that this machine lacks panics. Close frees the threads.
func New(threads int) *Backend {
	k, err := detect()
	if err != nil {
		panic("cpu: " + err.Error())
	}
	return newBackend(k, threads)
}

// newBackend makes a backend with the given instructions; 0 threads or fewer mean as many as Go may use.
func newBackend(k *isa, threads int) *Backend {
	if threads <= 0 {
		threads = runtime.GOMAXPROCS(0)
	}
	b := &Backend{k: k, team: newWorkerPool(k, threads)}
	pool := tensor.NewPool("scratch", 0)
	b.shared.pool = pool
	for _, w := range b.team.workers {
		w.arena.pool = pool
	}
	return b
}

// Close ends the threads; the backend must not be used afterwards.
func (b *Backend) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.team.close()
	b.shared.free()
	for _, w := range b.team.workers {
		w.arena.free()
	}
	return nil
}

var _ = kernels.RegisterBackend(kernels.CPU, kernels.Maker{Open: open})

// open makes the backend from options. The processor is one device, so there is nothing to choose.
func open(o kernels.Options) (kernels.Backend, error) {
	if o.Which != "" {
		return nil, fmt.Errorf("device cpu:%s: the processor has no parts to choose", o.Which)
	}
	k, err := detect()
	if err != nil {
		return nil, err
	}
	return newBackend(k, o.Threads), nil
}

// Name is "cpu" and the level of instructions in use.
func (b *Backend) Name() string { return "cpu-" + b.k.name }

// Threads is the number of threads a call may use, the caller's among them.
func (b *Backend) Threads() int { return len(b.team.workers) }

// Sync does nothing: Run returns when results are there.
func (b *Backend) Sync() {}

// Run carries out one call; an unknown operation or operands that break the contract panic.
func (b *Backend) Run(c *kernels.Call) {
	f, ok := table[c.Op]
	if !ok {
		panic(fmt.Sprintf("cpu: no operation %q", c.Op))
	}
	if err := kernels.Check(c); err != nil {
		panic("cpu: " + err.Error())
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	defer b.shared.reset()
	f(b, c)
}

var table = map[kernels.Op]func(*Backend, *kernels.Call){}

// init enters the kernels of dense language models; other files enter those of other kinds, before or behind it.
func init() {
	maps.Copy(table, map[kernels.Op]func(*Backend, *kernels.Call){
		kernels.Linear: linear, kernels.LinearDX: linearDX, kernels.LinearDW: linearDW,
		kernels.ColSum:  colSum,
		kernels.RMSNorm: rmsNorm, kernels.RMSNormDX: rmsNormDX, kernels.RMSNormDW: rmsNormDW,
		kernels.RopeTable: ropeTable, kernels.Rope: rope,
		kernels.Attention: attention, kernels.AttentionBwd: attentionBwd,
		kernels.SwiGLU: swiglu, kernels.SwiGLUBwd: swigluBwd, kernels.Embed: embed, kernels.EmbedDW: embedDW,
		kernels.LinearLSE: linearLSE, kernels.LSEJoin: lseJoin, kernels.NLL: nll,
		kernels.LogitsNLL:     logitsNLL,
		kernels.Divergence:    onProcessor(kernels.StoreDivergence),
		kernels.DivergenceBwd: onProcessor(kernels.StoreDivergence),
		kernels.Contrast:      onProcessor(kernels.StoreContrast),
		kernels.ContrastBwd:   onProcessor(kernels.StoreContrast),
		kernels.TokenNLL:      onProcessor(kernels.StoreTokenNLL),
		kernels.GroupNLL:      onProcessor(kernels.StoreGroupNLL),
		kernels.Objective:     onProcessor(kernels.StoreObjective),
		kernels.ObjectiveBwd:  onProcessor(kernels.StoreObjective),
		kernels.LinearCEDX:    linearCE, kernels.LinearCEDW: linearCE, kernels.LinearCEBwd: linearCE,
		kernels.LinearCE: lossAndGradients,
		kernels.Sum:      sum, kernels.Mul: mul, kernels.Scale: scale, kernels.Cast: cast,
		kernels.Fill:    fill,
		kernels.Dropout: dropout, kernels.Slice: slice, kernels.Concat: concat, kernels.AddTo: addTo,
		kernels.SumSquares: sumSquares, kernels.AdamW: adamW, kernels.AdamWNarrow: adamW,
		kernels.AdamW8: adamW8, kernels.SGD: sgd, kernels.Average: average,
		kernels.Lion: lion, kernels.ScheduleFree: scheduleFree,
		kernels.MuonMomentum: muonMomentum, kernels.MuonStep: muonStep, kernels.Orthogonalize: orthogonalize,
	})
}
