package cost

import (
	"fmt"
	"math"

	"github.com/lfactor/lfactor/kernels"
)

// Measured is a training step of a decoder whose time was measured: Megatron's layers with full recompute,
// 1F1B, half precision. Seconds is 0 where nothing was measured.
type Measured struct {
	GPUs, Batch, Micro, Hidden, Heads, Layers, Seq, TP, DP, PP int
	Seconds                                                    float64
}

// Check says what is impossible about a row: the name of its column and why.
func (r *Measured) Check() (column, why string) {
	for _, f := range []struct {
		name string
		v    int
	}{{"# GPUs", r.GPUs}, {"global batch", r.Batch}, {"micro batch", r.Micro}, {"hidden size", r.Hidden},
		{"attention heads", r.Heads}, {"# layers", r.Layers}, {"sequence length", r.Seq},
		{"tensor parallelism", r.TP}, {"data parallelism", r.DP}, {"pipeline parallelism", r.PP}} {
		if f.v < 1 || f.v > 1<<24 {
			return f.name, fmt.Sprintf("%d is out of range", f.v)
		}
	}
	switch {
	case r.TP*r.DP*r.PP != r.GPUs:
		return "# GPUs", fmt.Sprintf("%d, but tp %d · dp %d · pp %d = %d", r.GPUs, r.TP, r.DP, r.PP, r.TP*r.DP*r.PP)
	case r.Batch%(r.Micro*r.DP) != 0:
		return "global batch", fmt.Sprintf("%d is not a multiple of micro batch %d · data parallelism %d",
			r.Batch, r.Micro, r.DP)
	case r.PP > r.Layers:
		return "pipeline parallelism", fmt.Sprintf("%d stages for %d layers", r.PP, r.Layers)
	}
	return "", ""
}

// Microbatches a step and replica.
func (r *Measured) Microbatches() int { return r.Batch / r.Micro / r.DP }

// Terms are the parts of a step, in seconds; their sum is the prediction.
type Terms struct {
	Products float64 // matrix products of the layers, of all microbatches
	Memory   float64 // their norms, activations, dropouts and softmax
	TP       float64 // all-reduces inside layers
	Host     float64 // what the device waits for the host to launch kernels
	Logits   float64 // the last stage's logits and loss
	Bubble   float64 // of the pipeline, with its share of all four
	PP       float64 // activations between stages on the critical path
	DP       float64 // gradient all-reduce
	Step     float64 // optimizer
}

// Sum is the step time.
func (t Terms) Sum() float64 {
	return t.Products + t.Memory + t.TP + t.Host + t.Logits + t.Bubble + t.PP + t.DP + t.Step
}

// Constants of a cluster, as effective values.
type Constants [numConstants]float64

// The constants.
const (
	peakShare   = iota // of a device's arithmetic that products reach when tiles fill it
	prologue           // depth of a product, in elements of its sum, that a tile's start and end cost
	streamShare        // of the memory's rate that other kernels reach
	hostLayer          // seconds that launching a layer's kernels takes the host, all passes
	hostSoftmax        // seconds that it takes more where the softmax is not one kernel
	hostStage          // seconds that it takes for the last stage's logits, loss and data
	insideByte         // seconds a byte between devices of a host, a device and direction
	call               // seconds a doubling of a collective's group inside a host
	callAcross         // seconds more a doubling of the hosts that a collective or message goes through
	acrossByte         // seconds a byte that leaves a host over all its adapters
	dpByte             // the same for the all-reduce of gradients
	messageByte        // the same for messages between stages
	message            // seconds that a message takes besides, and both sides' wait for their devices
	numConstants
)

// Constant is what a constant is called and in which range it is physical.
type Constant struct {
	Name, Unit  string
	Start       float64 // what a constant keeps of which no row tells anything
	Least, Most float64
	// Sheet is set where Start follows from a data sheet, so that a row or two that stand apart do not move
	// the constant far from it.
	Sheet bool
}

// ConstantTable describes the constants of hosts with eight A100: NVLink has 300 GB/s a direction, and four
// adapters of 200 Gb/s have 100 GB/s. Sums between neighbouring hosts begin at that rate, what crosses more
// switches at four fifths of it.
var ConstantTable = [numConstants]Constant{
	peakShare:   {Name: "products' share of peak", Start: 0.7, Least: 0.3, Most: 0.95},
	prologue:    {Name: "tile's prologue", Unit: "elements", Start: 100, Least: 1, Most: 1024},
	streamShare: {Name: "other kernels' share of memory rate", Start: 0.7, Least: 0.3, Most: 1},
	hostLayer:   {Name: "launching a layer", Unit: "s", Start: 3e-3, Least: 2e-4, Most: 2e-2},
	hostSoftmax: {Name: "launching a softmax in parts", Unit: "s", Start: 1e-3, Least: 1e-4, Most: 5e-3},
	hostStage:   {Name: "launching logits and loss", Unit: "s", Start: 4e-3, Least: 1e-4, Most: 3e-2},
	insideByte:  {Name: "link inside a host", Unit: "s/B", Start: 1 / 200e9, Least: 1 / 300e9, Most: 1 / 20e9},
	call:        {Name: "collective, by doubling of its group", Unit: "s", Start: 2e-5, Least: 1e-6, Most: 1e-3},
	callAcross:  {Name: "collective, by doubling of its hosts", Unit: "s", Start: 1e-4, Least: 1e-6, Most: 2e-3},
	acrossByte: {Name: "adapters of a host", Unit: "s/B", Start: lineByte, Least: lineByte, Most: 1 / 5e9,
		Sheet: true},
	dpByte: {Name: "adapters, for gradients", Unit: "s/B", Start: 1.25 * lineByte, Least: lineByte,
		Most: 1 / 5e9, Sheet: true},
	messageByte: {Name: "adapters, for messages", Unit: "s/B", Start: 1.25 * lineByte, Least: lineByte,
		Most: 1 / 5e9, Sheet: true},
	message: {Name: "message between stages", Unit: "s", Start: 1e-4, Least: 1e-6, Most: 1e-2},
}

// hostForward is a forward's part of launching a microbatch. It runs twice, from Python; a backward is launched by
// autograd's own thread in about half the time of a forward, though it is as long for the device as two.
const hostForward = 0.4

const (
	vocabulary = 51200 // of Megatron's GPT models, padded
	perHost    = 8
	adapters   = 4         // of a host
	lineByte   = 1 / 100e9 // seconds a byte over all of them
)

// What an A100's data sheet says.
const (
	peak            = 312e12 // half-precision operations a second
	memoryRate      = 1.94e12
	multiprocessors = 108
)

// Bytes of memory traffic of what is no product, half precision. A layer's norms, dropouts and residuals
// read and write its activations whole on every tensor-parallel rank; its gates and biases those of the
// inner layer; the softmax of attention, with mask and dropout, all scores. The loss is computed in float32.
const (
	fullPasses  = 20 // times 2 bytes, of forward, recomputed forward and backward
	innerPasses = 8
	scorePasses = 16
	lossBytes   = 50 // an element of the logits
	stepBytes   = 32 // a parameter: gradient and weight in half, master weight and two moments in float32
)

// Slots is how long a pipeline of equal stages takes, in times of one microbatch on one stage: the makespan
// of its program.
type Slots func(pp, micro int) (float64, error)

// Pieces are the durations of what a rank does in a step, in seconds: what a simulation of the row's program
// takes as prices.
type Pieces struct {
	Products float64 // of a stage's layers for one microbatch: forward, recomputed forward and backward
	Memory   float64 // its other kernels
	TP       float64 // all-reduces inside its layers
	Host     float64 // what launching them takes longer
	Logits   float64 // what the last stage takes longer than others
	Message  float64 // between stages
	DP       float64 // all-reduce of a rank's gradients
	Step     float64 // its optimizer step
}

// Stage is the time of a microbatch on a stage that is not the last.
func (p *Pieces) Stage() float64 { return p.Products + p.Memory + p.TP + p.Host }

// Pieces prices a row. Each pass of a stage, its forward and its backward with the recomputed forward, takes its device
// or its host, whichever is slower. Stages of a pipeline wait for each other's messages, so that the host's launching
// of the logits and the device's work on them are not hidden by what comes before; where there is one stage, they are.
func (k *Constants) Pieces(r *Measured) (p Pieces) {
	b, s, h, t := float64(r.Micro), float64(r.Seq), float64(r.Hidden), float64(r.TP)
	tok, layers, heads := float64(r.Micro*r.Seq), float64(r.Layers)/float64(r.PP), float64(r.Heads)
	stream := memoryRate * k[streamShare]
	p.Products = layers * k.layerProducts(r)
	p.Memory = layers * (tok*h*2*fullPasses + tok*4*h/t*2*innerPasses + b*heads/t*s*s*2*scorePasses) / stream
	activation := 2 * tok * h
	if r.TP > 1 {
		const reduces = 6 // two in each of forward, recomputed forward and backward
		p.TP = layers * reduces * k.allReduce(r.TP, activation, r.TP <= perHost, k[acrossByte])
	}
	logits := 3*k.product(1, r.Micro*r.Seq, vocabulary/r.TP, r.Hidden) + tok*vocabulary/t*lossBytes/stream
	device, host := p.Products+p.Memory+p.TP, layers*k.launches(r)
	p.Host = max(hostForward*host, device/4) + max((1-hostForward)*host, device*3/4) - device
	if r.PP > 1 {
		p.Logits, p.Message = logits+k[hostStage], activation*k.messageBytes(r)+k[message]
	} else {
		p.Logits = max(device+logits, host+k[hostStage]) - p.Stage()
		if p.Logits < 0 { // the device catches up with its host during the logits
			p.Host, p.Logits = p.Host+p.Logits, 0
		}
	}
	params := (12*h*h*layers + vocabulary*h) / t
	if r.DP > 1 {
		// Each of the tensor-parallel ranks of a host has a ring, and they share its adapters. Gradients are
		// summed in float32, as Megatron-LM accumulates them.
		p.DP = k.allReduce(r.DP, 4*params, r.TP*r.DP <= perHost, k[dpByte]*min(perHost, t))
	}
	p.Step = params * stepBytes / stream
	return
}

// messageBytes is the time of a message between stages, for each of its bytes. Between hosts it is scattered
// over a tensor-parallel group, each rank has an adapter of its own at best, and all ranks of a host send
// beside each other. Both sides wait for their devices besides: Megatron-LM synchronizes behind each exchange
// (p2p_communication.py), so that a message takes the same some tens of microseconds on any link.
func (k *Constants) messageBytes(r *Measured) float64 {
	if r.GPUs <= perHost {
		return k[insideByte]
	}
	t := float64(r.TP)
	return k[messageByte] * max(adapters/t, min(perHost/t, float64(r.DP)))
}

// launches is what it takes a host to launch a layer's kernels. Megatron-LM has the scaled and masked
// softmax as one kernel where a rank's heads of a microbatch are a multiple of 4 (fused_softmax.py,
// is_kernel_available: a block of threads takes 4 rows), and as several calls elsewhere.
func (k *Constants) launches(r *Measured) float64 {
	if fused(r) {
		return k[hostLayer]
	}
	return k[hostLayer] + k[hostSoftmax]
}

func fused(r *Measured) bool { return r.Micro*max(1, r.Heads/r.TP)%4 == 0 }

// allReduce is a ring's, inside a host or through hosts' adapters.
func (k *Constants) allReduce(ranks int, bytes float64, near bool, across float64) float64 {
	n := float64(ranks)
	perByte, latency := k[insideByte], k[call]*math.Log2(n)
	if !near {
		perByte = max(perByte, across)
		latency = k[call]*math.Log2(min(n, perHost)) + k[callAcross]*math.Log2(max(2, n/perHost))
	}
	return 2*(n-1)/n*bytes*perByte + latency
}

// layerProducts are those of a layer's forward, recomputed forward and backward, which has two of each: its
// linear layers, and attention's, of all heads beside each other.
func (k *Constants) layerProducts(r *Measured) (sum float64) {
	tok, h, t := r.Micro*r.Seq, r.Hidden, r.TP
	for _, p := range [][2]int{{h, 3 * h / t}, {h / t, h}, {h, 4 * h / t}, {4 * h / t, h}} {
		in, out := p[0], p[1]
		sum += 2*k.product(1, tok, out, in) + k.product(1, tok, in, out) + k.product(1, in, out, tok)
	}
	heads, d, s := r.Micro*max(1, r.Heads/t), max(1, h/r.Heads), r.Seq
	// scores of both forwards and their gradient; what they weigh in both forwards, and the gradients of
	// queries, keys and values
	return sum + 3*k.product(heads, s, s, d) + 5*k.product(heads, s, d, s)
}

// product is the time of so many (m, d) · (d, n) beside each other.
func (k *Constants) product(count, m, n, d int) float64 {
	device := Machine{Flops: peak, Efficiency: k[peakShare], Bandwidth: memoryRate, Stream: k[streamShare],
		Units: multiprocessors, Prologue: k[prologue]}
	p := kernels.Product{Count: int64(count), M: int64(m), N: int64(n), K: int64(d)}
	return device.product(p) / (peak * k[peakShare])
}

// Predict gives the terms of a step whose program is slots long. Its sum is what the row's program takes in
// a simulation with the row's Pieces.
func (k *Constants) Predict(r *Measured, slots float64) Terms {
	p, m := k.Pieces(r), float64(r.Microbatches())
	return Terms{Products: m * p.Products, Memory: m * p.Memory, TP: m * p.TP, Host: m * p.Host,
		Logits: m * p.Logits, Bubble: (slots - m) * p.Stage(), PP: 2 * slots * p.Message, DP: p.DP, Step: p.Step}
}
