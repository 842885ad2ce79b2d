package features

import (
	"slices"
	"strings"

	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/block"
	"github.com/lfactor/lfactor/stages/checkpoint"
)

// Net is a network whose layers are known. Its records read pixels [n h w 3] from -1 to 1, in the precision
// of the block.
type Net struct {
	Class string
	// Width is the length of the vector that describes an image as a whole.
	Width int
	// Side is the height and width that images are brought to before they are described, 0 for none.
	Side int
	// Widths are the channels of its maps, from the finest on; nil for a network that only describes wholes.
	Widths []int
	// Work is the products of a pixel's place with weights that Maps takes.
	Work float64
	// Lins says that each map has weights by channel for Distance, as LPIPS has learnt them.
	Lins bool

	maps  func(r *block.Rec, prefix string, x *grad.Value) []*grad.Value
	whole func(r *block.Rec, prefix string, x *grad.Value) *grad.Value
}

// Maps are what the network makes of pixels at several levels, each [n h' w' c]. The names of its parameters
// begin with prefix.
func (n *Net) Maps(r *block.Rec, prefix string, x *grad.Value) []*grad.Value {
	return n.maps(r, prefix, x)
}

// Whole describes images as wholes, [n Width].
func (n *Net) Whole(r *block.Rec, prefix string, x *grad.Value) *grad.Value {
	return n.whole(r, prefix, x)
}

// Params are the parameters of Whole.
func (n *Net) Params() []*grad.Param {
	r := &block.Rec{T: grad.NewTape(grad.Options{NoGrad: true})}
	r.T.Output("whole", n.Whole(r, "", r.T.Data("pixels", tensor.F32, 1, leastSide, leastSide, 3)))
	return r.T.Finish().Params
}

// Least is the least side of an image of which every map has a place.
func (n *Net) Least() int { return 1 << (len(n.Widths) - 1) }

// leastSide is one that every network takes.
const leastSide = 96

// class is one of networks: its net of tensors, nil where they are of another class.
type class struct {
	name  string // what an error calls it
	paper string
	net   func(has map[string]checkpoint.Info) (*Net, error)
}

var classes []class

func register(c class) struct{} {
	classes = append(classes, c)
	slices.SortFunc(classes, func(a, b class) int { return strings.Compare(a.name, b.name) })
	return struct{}{}
}

// Read finds the network whose weights a file or a folder has, which are not read: files are those of PyTorch
// (.pth, .pt, .bin) and of safetensors, and a folder may have several, of different tensors.
func Read(path string) (*Net, error) {
	src, err := Open(path)
	if err != nil {
		return nil, err
	}
	defer src.Close() //nolint:errcheck // it was read only
	return netOf(src, path)
}

func netOf(src checkpoint.Source, path string) (*Net, error) {
	has := map[string]checkpoint.Info{}
	for _, t := range src.Tensors() {
		has[t.Name] = t
	}
	var names []string
	for _, c := range classes {
		n, err := c.net(has)
		if err != nil {
			return nil, &checkpoint.Error{File: path, Fault: checkpoint.Misshapen, Why: err.Error(),
				Try: "take weights of " + c.name}
		}
		if n != nil {
			n.Class = c.name
			return n, nil
		}
		names = append(names, c.name)
	}
	return nil, &checkpoint.Error{File: path, Fault: checkpoint.Missing,
		Why: "its tensors are those of no network that is known: " + strings.Join(names, ", ")}
}
