package optim

import (
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/lfactor/lfactor/configs/source"
	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// Config holds the hyper-parameters of an optimizer.
type Config struct {
	Name         string // of a registered Optimizer
	Beta1, Beta2 float64
	Eps          float64
	Decay        float64
	Momentum     float64
	Clip         float64 // largest global gradient norm; 0 for none
	Average      Averaging
	Muon         Muon
	Adafactor    Adafactor
	Moments      string // type of moments: "" or fp32, bf16, 8bit
	Rate         LR     // that updates are made with, for those that weigh them by it
	Block        int    // 8bit: most numbers that have a scale together
}

// Optimizer updates one tensor, or one rank's rows of it, by a kernel.
type Optimizer struct {
	Name  string
	Op    kernels.Op // the kernel of an update; "" where Update makes one of others
	State []string   // names of the state tensors, float32, in operand order
	// Narrow is the kernel of an update whose state is in bf16; "" where there is none.
	Narrow kernels.Op
	// Blocks is that of one whose state is in eight bits with scales of blocks of a row; "" where there is none.
	Blocks kernels.Op
	// Forms are those of the state tensors; nil for a float32 number for each of the parameter's.
	Forms []Form
	// Hyper fills the hyper-parameter operand for an update (counted from 1).
	Hyper func(c Config, lr float64, update int64, h []float64)
	// Update does without a kernel of its own; nil for the call of Op. Its operands are those of Apply.
	Update func(b kernels.Backend, grad, hyper, clip, p *tensor.Tensor, state []*tensor.Tensor,
		model *tensor.Tensor, noDecay bool)
	// Takes says of which parameters it is; the others have the optimizer that Rest names. Nil takes all.
	Takes func(s Subject) bool
	// Averages says that the state called AverageState is the model that is evaluated and exported.
	Averages bool
	Rest     string
	// Turning is set for an optimizer whose updates need matrices as wholes; nil for one that takes each
	// number by itself.
	Turning *Turning
	Paper   string
	Inner   bool // it is the Rest of another one, and no name for optimizer.kind
}

// Form is what a state tensor has of a parameter.
type Form struct {
	Type tensor.DType
	Per  int // numbers of a row that have one element together; 0 for one each
	// Whole is the shape of state that belongs to matrices as wholes, of that of a parameter, whose first axis it keeps
	// where that counts experts: all ranks that have numbers of a matrix have all of it. Nil is state by number
	Whole func(of []int) []int
}

// Shape is that of the state of a parameter of a shape.
func (f Form) Shape(of []int) []int {
	if f.Whole != nil {
		return f.Whole(of)
	}
	if f.Per == 0 {
		return of
	}
	s := slices.Clone(of)
	s[len(s)-1] /= f.Per
	return s
}

// Subject is a parameter as an optimizer looks at it.
type Subject struct {
	Shape   []int
	Layer   bool // of a layer, not of an embedding, a head or what stands before them
	Experts bool // a matrix for each expert
	Taps    bool // a row for each channel of a depthwise convolution, [channels 1 taps] elsewhere: no matrix
}

// Turning is how an optimizer updates whole matrices, whose rows and columns may lie on several ranks:
// Direct makes of a gradient's numbers, in place, those of a direction, Turn turns the direction of whole
// matrices [… n k] in place, and the optimizer's Update takes it in the gradient's place. Scale is
// kernels.HyperScale for matrices [n k], and Flops the arithmetic of Turn for one. Squares asks for the sums
// of the squares of the parameter's own numbers, which Turn then has.
type Turning struct {
	Direct  func(c Config, b kernels.Backend, grad, hyper, clip *tensor.Tensor, state []*tensor.Tensor)
	Turn    func(c Config, b kernels.Backend, whole *tensor.Tensor, with Turned)
	Scale   func(c Config, n, k int) float64
	Flops   func(c Config, n, k int) int64
	Squares bool
}

// Turned is what Turn has beside directions of whole matrices.
type Turned struct {
	Hyper, Clip *tensor.Tensor
	Square      *tensor.Tensor   // [e] f64, of each matrix, nil where Squares is not set
	State       []*tensor.Tensor // of the parameter, without a master copy
}

// For is the optimizer of a parameter: the one that c asks for, or the rest's.
func (c Config) For(s Subject) (Optimizer, error) {
	if o, err := Get(c.Name); err == nil && o.Takes != nil && !o.Takes(s) { //lfvet:kind it is no part of a model
		c.Name = o.Rest
	}
	if c.Moments == EightBit {
		c.Block = block(s, c.Block)
	}
	return Of(c)
}

// Form is that of a state tensor.
func (o Optimizer) Form(i int) Form {
	if o.Forms == nil {
		return Form{}
	}
	return o.Forms[i]
}

// StateBytes are those of the state of n numbers.
func (o Optimizer) StateBytes(n int64) (bytes int64) {
	for i := range o.State {
		f := o.Form(i)
		if f.Whole != nil { // of rows and columns
			continue
		}
		bytes += int64(f.Type.Size()) * n / int64(max(1, f.Per))
	}
	return bytes
}

// Traffic is what the update of n numbers reads and writes, in bytes: gradient, weight and each state tensor.
func (o Optimizer) Traffic(n int64) int64 { return 16*n + 2*o.StateBytes(n) }

var all = map[string]Optimizer{}

// Register adds an optimizer, which optimizer.kind then takes. It is called when a package is loaded and
// returns true, so that it can stand in a variable's declaration; two of one name are a bug of the program.
func Register(o Optimizer) bool {
	if _, dup := all[o.Name]; dup {
		panic("optim: " + o.Name + " registered twice")
	}
	if all[o.Name] = o; !o.Inner {
		source.Offer(source.Optimizers, o.Name)
	}
	return true
}

// Averages reports whether the named optimizer's model is an average of weights that it keeps.
func Averages(name string) bool { return all[name].Averages }

// Names lists the optimizers in order.
func Names() (l []string) {
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if !all[name].Inner {
			l = append(l, name)
		}
	}
	return l
}

// Get returns the named optimizer.
func Get(name string) (Optimizer, error) {
	o, ok := all[name]
	if !ok {
		return o, fmt.Errorf("optimizer %q: unknown, have %v", name, Names())
	}
	return o, nil
}

// Apply updates p in place: grad and p are float32 of one shape, state as State lists it, model the copy in
// the model's dtype or nil; noDecay leaves weight decay out.
//
//lfvet:params the operands of one operation, by the names of its contract
func (o Optimizer) Apply(b kernels.Backend, grad, hyper, clip, p *tensor.Tensor, state []*tensor.Tensor,
	model *tensor.Tensor, noDecay bool) {
	if o.Update != nil {
		o.Update(b, grad, hyper, clip, p, state, model, noDecay)
		return
	}
	at := kernels.Attr{}
	if noDecay {
		at.I[0] = 1
	}
	out := append(append([]*tensor.Tensor{p}, state...), model)
	b.Run(&kernels.Call{Op: o.Op, In: []*tensor.Tensor{grad, hyper, clip}, Out: out, Attr: at})
}

var _ = Register(Optimizer{Name: "adamw", Op: kernels.AdamW, Narrow: kernels.AdamWNarrow,
	Blocks: kernels.AdamW8, State: []string{"exp_avg", "exp_avg_sq"}, Paper: "1711.05101",
	Hyper: func(c Config, lr float64, update int64, h []float64) {
		h[kernels.HyperLR], h[kernels.HyperBeta1], h[kernels.HyperBeta2] = lr, c.Beta1, c.Beta2
		h[kernels.HyperEps], h[kernels.HyperDecay] = c.Eps, c.Decay
		h[kernels.HyperCorrection1] = 1 - math.Pow(c.Beta1, float64(update))
		h[kernels.HyperCorrection2] = 1 - math.Pow(c.Beta2, float64(update))
	}})
