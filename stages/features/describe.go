package features

import (
	"fmt"
	"math"
	"strings"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/block"
	"github.com/lfactor/lfactor/stages/checkpoint"
)

func invSqrt(n int) float64 { return 1 / math.Sqrt(float64(n)) }

// Describer is a network with its weights, in float32, on one backend. It is for one goroutine.
type Describer struct {
	*Net
	run    *grad.Runner
	traces map[[2]int]*grad.Trace
}

// tracesMost bounds the traces that a Describer keeps, one for each size of an image.
const tracesMost = 64

// Load opens the network of a file or a folder with its weights.
func Load(path string, b kernels.Backend) (*Describer, error) {
	src, err := Open(path)
	if err != nil {
		return nil, err
	}
	defer src.Close() //nolint:errcheck // it was read only
	n, err := netOf(src, path)
	if err != nil {
		return nil, err
	}
	d := &Describer{Net: n, traces: map[[2]int]*grad.Trace{}, run: grad.NewRunner(b, tensor.NewPool("features", 0))}
	has := map[string]checkpoint.Info{}
	for _, t := range src.Tensors() {
		has[t.Name] = t
	}
	for _, p := range d.trace(leastSide, leastSide).Params {
		if err := d.read(p, src, has, path); err != nil {
			d.Close()
			return nil, err
		}
	}
	return d, nil
}

// read brings a parameter to the backend.
func (d *Describer) read(p *grad.Param, src checkpoint.Source, has map[string]checkpoint.Info, path string) error {
	info, ok := has[p.Name]
	if !ok {
		return &checkpoint.Error{File: path, Tensor: p.Name, Fault: checkpoint.Missing, Why: "is not there"}
	}
	from, err := tensor.ParseDType(strings.ToLower(string(info.DType)))
	if err != nil || !from.Float() || fmt.Sprint(info.Shape) != fmt.Sprint(p.Shape) {
		return &checkpoint.Error{File: path, Tensor: p.Name, Fault: checkpoint.Misshapen,
			Why: fmt.Sprintf("it is %v of %s, want %v of floats", info.Shape, info.DType, p.Shape)}
	}
	raw := make([]byte, info.Bytes)
	box := make([][2]int, len(info.Shape))
	for i, n := range info.Shape {
		box[i] = [2]int{0, n}
	}
	if err := src.ReadRanges(p.Name, box, raw); err != nil {
		return err
	}
	v := make([]float32, tensor.Len(p.Shape))
	tensor.Widen(from, raw, v)
	t, err := d.run.Pool.New(p.Name, tensor.F32, p.Shape...)
	if err != nil {
		return err
	}
	kernels.Write(t, tensor.Of(tensor.F32, v, p.Shape...).Bytes())
	d.run.Params[p.Name] = t
	return nil
}

// trace describes one image of a size, which is brought to Side first.
func (d *Describer) trace(h, w int) *grad.Trace {
	if t, ok := d.traces[[2]int{h, w}]; ok {
		return t
	}
	if len(d.traces) >= tracesMost {
		clear(d.traces)
	}
	r := &block.Rec{T: grad.NewTape(grad.Options{NoGrad: true})}
	x := r.T.Data("pixels", tensor.F32, 1, h, w, 3)
	if d.Side > 0 && (h != d.Side || w != d.Side) {
		x = r.T.Resize(x, kernels.Bilinear, d.Side, d.Side)
	}
	r.T.Output("whole", d.Whole(r, "", x))
	t := r.T.Finish()
	d.traces[[2]int{h, w}] = t
	return t
}

// Describe gives the vector [Width] of an image of pixels [h w 3] from -1 to 1.
func (d *Describer) Describe(pixels []float32, h, w int) ([]float32, error) {
	if len(pixels) != 3*h*w || h < 1 || w < 1 {
		return nil, fmt.Errorf("features: %d numbers are no image of %d×%d pixels in three colours", len(pixels), w, h)
	}
	x := tensor.Of(tensor.F32, pixels, 1, h, w, 3)
	at, err := d.run.Pool.New("pixels", tensor.F32, x.Shape...)
	if err != nil {
		return nil, err
	}
	kernels.Write(at, x.Bytes())
	f := d.run.NewFrame(d.trace(h, w), map[string]*tensor.Tensor{"pixels": at}, nil, nil)
	if _, err := d.run.Step(f, grad.F, 0, nil); err != nil {
		f.Drop()
		return nil, err
	}
	t := f.Outputs()["whole"]
	out := make([]float32, d.Width)
	v := tensor.Make(tensor.F32, 1, d.Width)
	kernels.Read(d.run.Backend, v.Bytes(), t)
	copy(out, v.F32())
	t.Release()
	f.Close()
	return out, nil
}

// Close gives the weights back.
func (d *Describer) Close() {
	d.run.Close()
	for name, t := range d.run.Params {
		t.Release()
		delete(d.run.Params, name)
	}
}
