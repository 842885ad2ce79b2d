package kernels

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/lfactor/lfactor/kernels/tensor"
)

// operand is one parsed operand of a signature.
type operand struct {
	name     string
	dims     []dim // nil with any
	any      bool  // [*]: the shape is the operation's own affair
	dtypes   []dtype
	optional bool
	variadic bool // repeats the operand before it
}

// dim is one dimension of an operand: a letter, "c+1", a number, or "..." for any leading or trailing dimensions.
type dim struct {
	text string
	slot int // of the letter in a binding, -1 for a number
	more int // what is added to the letter; the number
}

// rest reports whether it stands for any number of dimensions.
func (d dim) rest() bool { return d.text == "..." }

func (d dim) String() string { return d.text }

// dtype is one dtype that an operand may have: f32 …, or a letter, A, T or U.
type dtype struct {
	text string
	slot int // of the letter in a binding, -1 for a dtype itself
	is   tensor.DType
}

func (d dtype) String() string { return d.text }

type signature struct{ in, out []operand }

var signatures = sync.OnceValue(func() map[Op]signature {
	m := map[Op]signature{}
	for _, s := range specs {
		in, out, ok := strings.Cut(s.Sig, "->")
		if !ok {
			panic(fmt.Sprintf("kernels: signature of %s has no ->", s.Op))
		}
		l := &letters{map[string]int{}, map[string]int{}}
		m[s.Op] = signature{l.operands(in), l.operands(out)}
	}
	return m
})

// letters are the slots of a signature's letters.
type letters struct{ dims, types map[string]int }

// slot is the place of a letter, a new one if it was not seen before.
func slot(seen map[string]int, letter string, most int) int {
	i, ok := seen[letter]
	if !ok {
		i = len(seen)
		seen[letter] = i
	}
	if i >= most {
		panic(fmt.Sprintf("kernels: a signature with more than %d letters", most))
	}
	return i
}

// operands reads one side of a signature: names with their dimensions and types in brackets. "..."
// lets the operand before it come any number of times, and "?" lets it be absent.
func (l *letters) operands(s string) []operand {
	var out []operand
	for _, f := range strings.Fields(s) {
		if f == "..." {
			out[len(out)-1].variadic = true
			continue
		}
		name, rest, _ := strings.Cut(f, "[")
		dims, types, ok := strings.Cut(rest, "]")
		if !ok {
			panic(fmt.Sprintf("kernels: operand %q of a signature lacks brackets", f))
		}
		o := operand{name: name, any: dims == "*", optional: strings.HasSuffix(types, "?")}
		for _, t := range strings.Split(strings.TrimSuffix(types, "?"), "|") {
			o.dtypes = append(o.dtypes, l.dtype(t))
		}
		if !o.any {
			for _, d := range strings.Split(dims, ",") {
				o.dims = append(o.dims, l.dim(d))
			}
		}
		out = append(out, o)
	}
	return out
}

// dim reads a dimension: a number, or a letter that stands for one number throughout the signature,
// plus one if the text says so.
func (l *letters) dim(text string) dim {
	if n, err := strconv.Atoi(text); err == nil {
		return dim{text, -1, n}
	}
	letter, more := strings.CutSuffix(text, "+1")
	d := dim{text: text, slot: slot(l.dims, letter, dimsMost)}
	if more {
		d.more = 1
	}
	return d
}

// dtype reads a type by its name, or a letter that stands for one type throughout the signature.
func (l *letters) dtype(text string) dtype {
	if is, err := tensor.ParseDType(text); err == nil {
		return dtype{text, -1, is}
	}
	return dtype{text: text, slot: slot(l.types, text, typesMost)}
}

// Check compares a call with the contract of its operation: the number of operands, dtypes, shapes and
// alignment. Backends panic with the error it returns, because such a call is a bug of the caller.
func Check(c *Call) error {
	s, ok := signatures()[c.Op]
	if !ok {
		return fmt.Errorf("no operation %q", c.Op)
	}
	var b binding
	if err := b.match(s.in, c.In); err != nil {
		return fmt.Errorf("%s: %w", c.Op, err)
	}
	if err := b.match(s.out, c.Out); err != nil {
		return fmt.Errorf("%s: %w", c.Op, err)
	}
	if f := extra[c.Op]; f != nil {
		if err := f(c); err != nil {
			return fmt.Errorf("%s: %w", c.Op, err)
		}
	}
	return checkThen(c)
}

// checkThen holds a call's epilogues to their contracts and to what they are for.
func checkThen(c *Call) error {
	if len(c.Then) > 0 && !TakesEpilogues(c.Op) {
		return fmt.Errorf("%s takes no epilogue", c.Op)
	}
	for _, t := range c.Then {
		switch {
		case !Epilogue(t.Op):
			return fmt.Errorf("%s is no epilogue", t.Op)
		case TakesEpilogues(t.Op) && len(t.In) > 2 && t.In[2] != nil:
			return fmt.Errorf("%s with a bias is no epilogue", t.Op)
		case len(t.Then) > 0:
			return fmt.Errorf("%s: an epilogue of an epilogue", t.Op)
		}
		if err := Check(t); err != nil {
			return err
		}
		for _, o := range t.Out {
			if o.Len() != c.Out[0].Len() {
				return fmt.Errorf("epilogue %s: %d elements of a product with %d", t.Op, o.Len(), c.Out[0].Len())
			}
		}
	}
	return nil
}

// binding holds what the letters of one call stand for.
type binding struct {
	dims [dimsMost]struct {
		n     int
		known bool
	}
	types [typesMost]struct {
		is    tensor.DType
		known bool
	}
}

// The most letters of a signature.
const (
	dimsMost  = 12
	typesMost = 3
)

// match checks operands against a signature, and binds the letters as they come. The first that
// does not fit is the error.
func (b *binding) match(want []operand, have []*tensor.Tensor) error {
	for i, o := range want {
		switch {
		case o.variadic:
			for _, t := range have[min(i, len(have)):] {
				if t == nil {
					return fmt.Errorf("operand %s is nil", o.name)
				}
				if err := b.operand(o, t); err != nil {
					return err
				}
			}
			return nil
		case i >= len(have) || have[i] == nil:
			if !o.optional {
				return fmt.Errorf("operand %s is absent", o.name)
			}
		default:
			if err := b.operand(o, have[i]); err != nil {
				return err
			}
		}
	}
	if len(have) > len(want) {
		return fmt.Errorf("%d operands, the contract has %d", len(have), len(want))
	}
	return nil
}

// operand checks one operand: type, alignment, and each dimension in turn. A dimension may stand
// for all rows that the others leave.
func (b *binding) operand(o operand, t *tensor.Tensor) error {
	if err := b.dtype(o, t); err != nil {
		return err
	}
	if !t.Aligned() {
		return fmt.Errorf("operand %s is %v at an address that is not a multiple of %d bytes", o.name, t,
			t.DType.Size())
	}
	if o.any {
		return nil
	}
	shape := t.Shape
	for i, d := range o.dims {
		if d.rest() { // as many as the others leave
			n := len(shape) - (len(o.dims) - i - 1)
			if n < 0 {
				return fmt.Errorf("operand %s is %v, want %v", o.name, t, o.dims)
			}
			if !b.dim(d, tensor.Len(shape[:n])) {
				return fmt.Errorf("operand %s is %v: %d rows, other operands have %d", o.name, t,
					tensor.Len(shape[:n]), b.dims[d.slot].n)
			}
			shape = shape[n:]
			continue
		}
		if len(shape) == 0 {
			return fmt.Errorf("operand %s is %v, want %v", o.name, t, o.dims)
		}
		if !b.dim(d, shape[0]) {
			return fmt.Errorf("operand %s is %v: dimension %s is %d elsewhere", o.name, t, d, b.elsewhere(d))
		}
		shape = shape[1:]
	}
	if len(shape) > 0 {
		return fmt.Errorf("operand %s is %v, want %v", o.name, t, o.dims)
	}
	return nil
}

// dim matches n with a letter, a letter plus one, or a number.
func (b *binding) dim(d dim, n int) bool {
	if d.slot < 0 {
		return d.more == n
	}
	have := &b.dims[d.slot]
	if !have.known {
		have.n, have.known = n-d.more, true
	}
	return n >= d.more && have.n == n-d.more
}

// elsewhere is what a dimension has to be.
func (b *binding) elsewhere(d dim) int {
	if d.slot < 0 {
		return d.more
	}
	return b.dims[d.slot].n + d.more
}

// dtype checks the type of an operand. A is the type of activations, which is the same for all operands that have it.
func (b *binding) dtype(o operand, t *tensor.Tensor) error {
	for _, d := range o.dtypes {
		if d.slot < 0 {
			if d.is == t.DType {
				return nil
			}
			continue
		}
		have := &b.types[d.slot]
		if have.known && have.is != t.DType || d.text == "A" && (!t.DType.Float() || t.DType == tensor.F64) {
			continue
		}
		have.is, have.known = t.DType, true
		return nil
	}
	return fmt.Errorf("operand %s is %v, want %s (A is the dtype of all A operands)", o.name, t, join(o.dtypes))
}

func join(types []dtype) string {
	var l []string
	for _, t := range types {
		l = append(l, t.text)
	}
	return strings.Join(l, "|")
}

// extra holds what a signature cannot say.
var extra = map[Op]func(*Call) error{
	Rope: func(c *Call) error {
		if d, r := c.In[0].Shape[2], c.In[1].Shape[1]; 2*r > d {
			return fmt.Errorf("%d pairs in a head of %d dimensions", r, d)
		}
		if s := c.Attr.I[0]; s != 1 && s != -1 {
			return fmt.Errorf("sign of the angle I[0] is %d, want 1 or -1", s)
		}
		return nil
	},
	Attention:       func(c *Call) error { return checkAttention(c, c.In[0], c.In[1], c.In[3:]) },
	AttentionBwd:    func(c *Call) error { return checkAttention(c, c.In[1], c.In[2], c.In[6:]) },
	GroupedLinear:   func(c *Call) error { return checkGroups(c, c.In[1].Shape[0]) },
	GroupedLinearDX: func(c *Call) error { return checkGroups(c, c.In[1].Shape[0]) },
	GroupedLinearDW: func(c *Call) error { return checkGroups(c, c.Out[0].Shape[0]) },
	PackedGrouped:   func(c *Call) error { return checkGroups(c, c.In[1].Shape[0]) },
	PackedGroupedDX: func(c *Call) error { return checkGroups(c, c.In[1].Shape[0]) },
	LinearLSE:       func(c *Call) error { return checkNumerators(c.In[1], c.Out[2:]) },
	LinearCEDX:      func(c *Call) error { return checkNumerators(c.In[1], c.In[6:]) },
	LinearCEDW:      func(c *Call) error { return checkNumerators(c.In[1], c.In[6:]) },
	LinearCEBwd:     func(c *Call) error { return checkNumerators(c.In[1], c.In[6:]) },
	LinearCE: func(c *Call) error {
		blocks, rows, step := LossWork(c.In[0].DType, c.In[0].Rows(), c.In[1].Shape[0])
		if want := []int{blocks, rows, step}; !slices.Equal(c.Out[1].Shape, want) {
			return fmt.Errorf("work has shape %v, want %v", c.Out[1].Shape, want)
		}
		return nil
	},
	Slice: func(c *Call) error {
		return checkAxis(c.Attr.I[0], c.Attr.I[1], c.In[0], c.Out[0])
	},
	Concat: checkConcat,
	Cast: func(c *Call) error {
		x, y := c.In[0].DType, c.Out[0].DType
		if x != y && !(x.Float() && y.Float()) {
			return fmt.Errorf("no conversion of %v to %v", x, y)
		}
		return nil
	},
}

// checkNumerators wants e and top of linear_lse together, a maximum for each block of columns.
func checkNumerators(w *tensor.Tensor, l []*tensor.Tensor) error {
	have := 0
	for _, t := range l {
		if t != nil {
			have++
		}
	}
	if have == 0 {
		return nil
	}
	if n := (w.Shape[0] + LSEBlock - 1) / LSEBlock; have != 2 || l[1].Shape[1] != n {
		return fmt.Errorf("operands e and top are %v, want both, and %d maxima a row for %d columns", l, n, w.Shape[0])
	}
	return nil
}

// checkHeads wants heads that divide, and offsets in order; more are the operands from cu_q on.
func checkHeads(q, k *tensor.Tensor, more []*tensor.Tensor) error {
	if g, h := k.Shape[1], q.Shape[1]; g == 0 || h%g != 0 {
		return fmt.Errorf("%d query heads with %d key heads", h, g)
	}
	if err := checkCu("cu_q", more[0], q.Shape[0]); err != nil {
		return err
	}
	return checkCu("cu_k", more[1], k.Shape[0])
}

// checkAttention is checkHeads with masks of the right size.
func checkAttention(c *Call, q, k *tensor.Tensor, more []*tensor.Tensor) error {
	if err := checkHeads(q, k, more); err != nil {
		return err
	}
	return checkMask(c.Attr, q.Shape[0], k.Shape[0], more[2:])
}

// checkMask wants blocks and the size of tiles together, and positions and limits.
func checkMask(at Attr, t, s int, mask []*tensor.Tensor) error {
	var m [4]*tensor.Tensor
	copy(m[:], mask)
	blocks, tile := m[0], at.I[2]
	switch have := m[1] != nil; {
	case (blocks != nil) != (tile > 0) || tile < 0:
		return fmt.Errorf("blocks are %v with tiles of I[2] = %d rows, want both or none", blocks, tile)
	case (m[2] != nil) != have || (m[3] != nil) != have:
		return fmt.Errorf("pos_q, pos_k and near are %v, want all or none", m[1:])
	case (blocks != nil || have) && !(at.F[0] > 0):
		return fmt.Errorf("scale F[0] is %g, a mask wants it over 0", at.F[0])
	}
	if blocks == nil {
		return nil
	}
	rows, words := (t+tile-1)/tile, ((s+tile-1)/tile+31)/32
	if blocks.Shape[0] != rows || blocks.Shape[1] != words {
		return fmt.Errorf("blocks is %v, want [%d %d]: tiles of %d for %d queries, and 32 a word for %d keys", blocks, rows, words, tile, t, s)
	}
	return nil
}

// checkCu wants 0 <= first, no decrease and the last offset within the rows.
// Contents are looked at where the host can see them; what a device holds was checked when it came in.
func checkCu(name string, cu *tensor.Tensor, rows int) error {
	if !cu.OnHost() {
		return nil
	}
	before := int32(0)
	for i, n := range cu.I32() {
		if n < before || int(n) > rows {
			return fmt.Errorf("%s[%d] is %d after %d with %d rows", name, i, n, before, rows)
		}
		before = n
	}
	return nil
}

// checkAxis wants part to equal whole but along axis, where part lies within whole from index at on.
func checkAxis(axis, at int, whole, part *tensor.Tensor) error {
	if axis < 0 || axis >= len(whole.Shape) || len(part.Shape) != len(whole.Shape) {
		return fmt.Errorf("axis %d of %v and %v", axis, whole, part)
	}
	for i, n := range part.Shape {
		if i != axis && n != whole.Shape[i] || i == axis && (at < 0 || at+n > whole.Shape[i]) {
			return fmt.Errorf("%v at %d of axis %d does not fit %v", part, at, axis, whole)
		}
	}
	return nil
}

// checkConcat checks that the inputs fill the output along their axis, without a gap.
func checkConcat(c *Call) error {
	if len(c.In) == 0 {
		return fmt.Errorf("no operands")
	}
	at := 0
	for _, x := range c.In {
		if err := checkAxis(c.Attr.I[0], at, c.Out[0], x); err != nil {
			return err
		}
		at += x.Shape[c.Attr.I[0]]
	}
	if at != c.Out[0].Shape[c.Attr.I[0]] {
		return fmt.Errorf("%d operands fill %d of axis %d of %v", len(c.In), at, c.Attr.I[0], c.Out[0])
	}
	return nil
}
