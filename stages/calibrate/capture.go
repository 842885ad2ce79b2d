package calibrate

import (
	"math"
	"unsafe"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// inputs are what linear layers that read the same rows have read.
type inputs struct {
	sums  *tensor.Tensor // xᵀx [k k], float32
	mags  []float64      // sums of magnitudes of columns
	rows  int
	names []string // parameters of the layers, as they came
	// norm is the weight of the RMSNorm that gave the rows, which multiplies them by plus more than itself;
	// up is the weight whose rows gave their columns, each multiplied by a gate. "" is neither.
	norm, up string
	plus     float64
	other    bool // something else reads them too
}

// capture is a backend that keeps what linear layers read. Values are told apart by where they lie.
type capture struct {
	kernels.Backend
	wanted map[*tensor.Tensor]string // weights of linear layers
	norms  map[*tensor.Tensor]string // other parameters
	of     map[string]*inputs        // by the weight's name
	all    []*inputs
	live   map[uintptr]*inputs // of rows that lie in memory now
	gave   map[uintptr]giver
	read   map[uintptr]bool // by what is no linear layer that is wanted
}

// giver says what made a value.
type giver struct {
	norm, linear, up string
	plus             float64
}

func address(t *tensor.Tensor) uintptr {
	b := t.Bytes()
	if len(b) == 0 {
		return 0
	}
	return uintptr(unsafe.Pointer(&b[0]))
}

// Run implements kernels.Backend.
func (c *capture) Run(call *kernels.Call) {
	c.reads(call)
	c.Backend.Run(call)
	c.writes(call)
	for _, then := range call.Then {
		c.reads(then)
		c.writes(then)
	}
}

// reads notes what a call reads, before it runs.
func (c *capture) reads(call *kernels.Call) {
	name, linear := "", call.Op == kernels.Linear
	if linear {
		name, linear = c.wanted[call.In[1]], c.wanted[call.In[1]] != ""
	}
	if linear {
		c.take(name, call.In[0])
	}
	for i, t := range call.In {
		if t == nil || linear && i == 0 {
			continue
		}
		at := address(t)
		if c.read[at] = true; c.live[at] != nil {
			c.live[at].other = true
		}
	}
}

// writes forgets what a call wrote over, and notes what it gave.
func (c *capture) writes(call *kernels.Call) {
	var g giver
	switch call.Op {
	case kernels.RMSNorm:
		g.norm, g.plus = c.norms[call.In[1]], call.Attr.F[1]
	case kernels.Linear:
		g.linear = c.wanted[call.In[1]]
	case kernels.SwiGLU:
		g.up = c.gave[address(call.In[1])].linear
	}
	for i, t := range call.Out {
		if t == nil {
			continue
		}
		at := address(t)
		delete(c.live, at)
		delete(c.gave, at)
		delete(c.read, at)
		if i == 0 && g != (giver{}) {
			c.gave[at] = g
		}
	}
}

// take adds the rows that a layer reads, unless another has that reads the same.
func (c *capture) take(name string, x *tensor.Tensor) {
	at := address(x)
	in := c.live[at]
	if in == nil {
		if in = c.of[name]; in == nil {
			k := x.Shape[len(x.Shape)-1]
			g := c.gave[at]
			in = &inputs{mags: make([]float64, k), norm: g.norm, plus: g.plus, up: g.up}
			in.sums = tensor.Make(tensor.F32, k, k)
			c.all = append(c.all, in)
		}
		c.add(in, x)
		c.live[at] = in
		in.other = in.other || c.read[at]
	}
	if c.of[name] == nil {
		c.of[name] = in
		in.names = append(in.names, name)
	}
}

// add adds rows to sums.
func (c *capture) add(in *inputs, x *tensor.Tensor) {
	call := &kernels.Call{Op: kernels.LinearDW, In: []*tensor.Tensor{x, x}, Out: []*tensor.Tensor{in.sums}}
	if in.rows > 0 {
		call.Attr.I[0] = kernels.Accumulate
	}
	c.Backend.Run(call)
	v, k := x.F32(), len(in.mags)
	for len(v) > 0 {
		for j, a := range v[:k] {
			in.mags[j] += math.Abs(float64(a))
		}
		v = v[k:]
		in.rows++
	}
}

// given marks rows that leave the block as read by others.
func (c *capture) given(t *tensor.Tensor) {
	if in := c.live[address(t)]; in != nil {
		in.other = true
	}
}

// begin takes the parameters of a block.
func (c *capture) begin(params map[string]*tensor.Tensor, linear func(name string) bool) {
	c.wanted, c.norms = map[*tensor.Tensor]string{}, map[*tensor.Tensor]string{}
	c.of, c.all = map[string]*inputs{}, nil
	for name, t := range params {
		if linear(name) {
			c.wanted[t] = name
		} else {
			c.norms[t] = name
		}
	}
}

// frame forgets what lies in memory.
func (c *capture) frame() {
	c.live, c.gave, c.read = map[uintptr]*inputs{}, map[uintptr]giver{}, map[uintptr]bool{}
}
