package layout

import (
	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/pipeline/plan"
	"github.com/lfactor/lfactor/stages/block"
	"github.com/lfactor/lfactor/stages/family"
	"github.com/lfactor/lfactor/stages/fit"
	"github.com/lfactor/lfactor/stages/optim"
	"github.com/lfactor/lfactor/topology"
)

// OffloadFrom is the size in bytes from which on plan.offload moves a tensor to host memory.
const OffloadFrom = 64 << 10

// Design is what is to be laid out: model, plan and hyper-parameters as plain values.
//
//lfvet:fields one field a setting of a plan, which commands and tests fill by name
type Design struct {
	Model  *family.Model
	Lora   *block.Lora
	Frozen func(param string) bool
	First  bool          // only the first rank is laid out: enough for the stages' traces
	Mesh   topology.Mesh // of the decoder, and of every component that is not one of Parts
	// leading components with meshes of their own, in the order of the model's blocks
	Parts       []*PartPlan
	Zero        int
	FixedPoint  bool // gradients are added up in fixed point, and other sums likewise: no plan changes a bit of them
	SeqParallel bool
	Ring        bool // keys and values go round the ranks of context parallelism
	Zigzag      bool // tokens are dealt out to these in two runs each
	Schedule    string
	Program     *plan.Program // in place of the one that Schedule builds, nil for none
	Loops       int           // stages a pipeline rank, 0 is 1
	Cuts        []int
	Micro       int // microbatches a step and data-parallel rank
	Chunks      int // chunks of each microbatch's sequence, 0 is 1
	KeepChunks  int // newest chunks that keep their activations whatever Recompute says
	Rows        int // tokens of a microbatch
	SeqLen      int // tokens of each of its sequences, for costs; 0 is one sequence
	// of a large microbatch beside its tokens, as patches of images: what memory is planned for
	Dims      map[string]int
	Recompute grad.Recompute
	// how many of the first layers of each stage, or of every stage, Recompute is for; nil is all
	RecomputeLayers []int
	// bytes from which on a saved activation lies in host memory between forward and backward; 0 is none
	Offload int
	// what becomes of tensors by name, whatever Recompute and Offload say; of several for one tensor the first
	Chosen []Chosen
	// share of the optimizer's state that lies in host memory between updates, 0 is none; and the bytes of
	// each state tensor that the update has on the device at a time, 0 is 16 MiB
	OffloadState float64
	Piece        int
	DType        tensor.DType
	Component    func(name string) fit.ComponentPlan // in place of DType and Recompute, nil for none
	Optim        optim.Config
	LRScale      func(param string) float64 // factor on the learning rate; nil is 1
	OptimOf      func(param string) string  // optimizer of a parameter, "" for that of Optim; nil for all
	DecayScale   func(param string) float64 // and on weight decay
	// ClipOf is the gradient norm that the group of a parameter is clipped by, and the group, from 1; group 0 is of
	// all parameters that have none. Nil is 0 for all
	ClipOf func(param string) (limit float64, group int)
	// passes over attention's scores in memory, for costs of programs that do not fuse it (grad.Options)
	Scores float64
	// what calls cost a device that they do not keep busy (grad.Options), for costs; nil if nothing is known
	Device func(w kernels.Work) (flops, bytes int64)
	// what calls are in other software (grad.Options), and how many times the traffic of its optimizer step is that of
	// lfactor's (0: once), for costs
	Software func(op kernels.Op, products []kernels.Product, bytes int64) (more int64, calls int)
	Updates  float64
	// bytes on a rank below which the terms of a sum that all members need are sent to all of them at once;
	// of larger ones each member sums a part
	SumWhole int
	// communications are awaited at their first use, not by the next segment
	Overlap bool
	// a forward runs in turns with another microbatch's backward, so that the exchanges of each travel behind
	// the other; communications are awaited at their first use
	Pairs bool
	// bytes of gradients of data-parallel ranks that are sent together, as soon as the last backward has
	// made them; 0 sends all behind it
	Bucket  int64
	Credits int
	Memory  int64 // bytes a rank, 0 for no limit
	Seed    uint64
	// rows that a rank may receive for its experts, over the number under even routing; 0 is not a bound
	RoutingBound float64
	MoveEvery    int // steps from one move of experts between ranks to the next, 0 for none
	Nodes        int // hosts that the ranks of expert parallelism are spread over, in order; 0 is 1
}
