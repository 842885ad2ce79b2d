//go:build cuda

package cuda

import (
	"fmt"
	"math"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/accel"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// Issue implements accel.Program.
func (d *device) Issue(q *accel.Queue, c *kernels.Call) (bool, error) {
	f := table[c.Op]
	if f == nil {
		return false, nil
	}
	if c.Op != kernels.AdamW && c.Op != kernels.SumSquares {
		if err := d.raise(); err != nil {
			return false, err
		}
	}
	if d.ranges != nil {
		defer d.ranges.over(string(c.Op))()
	}
	x := &issue{d: d, q: q, c: c}
	f(x)
	if x.absent {
		return false, nil
	}
	return true, x.err
}

// table has the launches of each operation.
var table = map[kernels.Op]func(x *issue){}

// register fills the table; a second entry would hide the first.
func register(ops map[kernels.Op]func(x *issue)) bool {
	for op, f := range ops {
		if table[op] != nil {
			panic("cuda: " + string(op) + " registered twice")
		}
		table[op] = f
	}
	return true
}

// issue is one call on its way to the device; the first error stops what follows.
type issue struct {
	d      *device
	q      *accel.Queue
	c      *kernels.Call
	err    error
	absent bool // the device does not have the operation for these operands
}

// in and out are operands, nil where they are absent.
func (x *issue) in(i int) *tensor.Tensor  { return optional(x.c.In, i) }
func (x *issue) out(i int) *tensor.Tensor { return optional(x.c.Out, i) }

func optional(l []*tensor.Tensor, i int) *tensor.Tensor {
	if i < len(l) {
		return l[i]
	}
	return nil
}

// work is device memory for n elements of so many bytes until the end of the call.
func (x *issue) work(n, size int) uint64 { return x.q.Work(n * size) }

// accumulates tells whether Attr.I[i] asks for adding into the output.
func (x *issue) accumulates(i int) bool { return x.c.Attr.I[i] == kernels.Accumulate }

// launch starts a kernel with a struct of these fields: tensors and addresses, integers, truth values and float64.
func (x *issue) launch(name string, g grid, args ...any) {
	if x.err != nil || x.absent || g.x == 0 {
		return
	}
	if !x.fits(name, g.shared) {
		x.absent = true // what was launched for the call already is overwritten
		return
	}
	words := make([]uint64, len(args))
	for i, a := range args {
		switch v := a.(type) {
		case nil:
		case *tensor.Tensor:
			words[i] = x.q.Addr(v)
		case uint64:
			words[i] = v
		case int:
			words[i] = uint64(v)
		case bool:
			if v {
				words[i] = 1
			}
		case float64:
			words[i] = math.Float64bits(v)
		default:
			panic(fmt.Sprintf("cuda: argument %d of %s is a %T", i, name, a))
		}
	}
	if x.err = x.q.Failed(); x.err == nil {
		x.err = x.d.raise()
	}
	if x.err == nil {
		x.err = x.d.launch(name, g, words)
	}
}

// fits tells whether blocks of a kernel may have so many bytes of shared memory beside their own.
func (x *issue) fits(name string, shared int) bool {
	if shared == 0 || x.err != nil {
		return true
	}
	var f function
	x.err = x.d.do(func() (err error) { f, err = x.d.function(name); return err })
	return f.static+shared <= x.d.room()
}

// typed is the kernel of a name for a dtype of activations.
func typed(name string, t *tensor.Tensor) string { return name + "_" + t.DType.String() }

// clear sets all bytes of a tensor.
func (x *issue) clear(t *tensor.Tensor, v byte) {
	if x.err == nil && t.Size() > 0 {
		x.err = x.d.Clear(x.q.Addr(t), v, t.Size())
	}
}

// copy copies a tensor.
func (x *issue) copy(to, from *tensor.Tensor) {
	if x.err != nil || from.Size() == 0 {
		return
	}
	a, b := x.q.Addr(to), x.q.Addr(from)
	if x.err = x.q.Failed(); x.err == nil && a != b {
		x.err = x.d.Copy(a, b, from.Size())
	}
}

func lastDim(t *tensor.Tensor) int { return t.Shape[len(t.Shape)-1] }

func parts(n, size int) int { return (n + size - 1) / size }

const mostBlocks = 1 << 16 // of elementwise kernels, whose blocks go over all elements together

// each is a grid for n elements.
func each(n int) grid { return grid{x: min(parts(n, 256), mostBlocks), threads: 256} }

// eachEight is a grid for n elements of which a thread has eight at a time.
func eachEight(n int) grid { return each(parts(n, 8)) }

// rowwise is a block for each of n rows of so many elements.
func rowwise(n, width int) grid { return grid{x: n, threads: min(256, max(32, parts(width, 32)*32))} }

// single is one block.
func single(n int) grid { return rowwise(1, n) }
