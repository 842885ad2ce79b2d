package quant

import (
	"github.com/lfactor/lfactor/kernels"
)

// Packing is how a grid can lie in memory with the numbers that it has, the zero value if it cannot:
// where its groups are no neighbouring columns, or its numbers those of no form.
func (g *Grid) Packing() kernels.Packing {
	if g.Group == 0 {
		return kernels.Packing{}
	}
	group := g.Group
	if group >= g.Cols {
		group = 0
	}
	for i, f := range kernels.PackedForms {
		if f.Name == g.form() {
			return kernels.Packing{Form: i, Group: group}
		}
	}
	return kernels.Packing{}
}

// form is the name of the form in memory whose numbers the table has.
func (g *Grid) form() string {
	if _, whole := g.integers(); whole {
		if len(g.Table) <= 16 {
			return "int4"
		}
		return "int8"
	}
	for _, f := range kernels.PackedForms {
		if len(f.Table) != len(g.Table) {
			continue
		}
		same := true
		for i, x := range f.Table {
			same = same && (x == g.Table[i] || x != x && g.Table[i] != g.Table[i])
		}
		if same {
			return f.Name
		}
	}
	return ""
}

// integers reports whether the table is of integers that count up from -less, in the order of codes or, of
// signed bytes, in the order of their numbers.
func (g *Grid) integers() (less int, ok bool) {
	first := g.Table[g.order(0)]
	for i := range g.Table {
		if g.Table[g.order(i)] != first+float32(i) {
			return 0, false
		}
	}
	return int(-first), true
}

// order is the code of the i-th number: signed bytes begin in the middle.
func (g *Grid) order(i int) int {
	if len(g.Table) == 256 && g.Table[128] == -128 && g.Table[0] == 0 {
		return i ^ 128
	}
	return i
}

// Pack sets dst to rows as they lie in memory: a matrix of Packing.
func (g *Grid) Pack(rows [2]int, dst []byte) error {
	p := g.Packing()
	_, words := p.Words(g.Cols)
	less, whole := g.integers()
	n, size := p.Groups(g.Cols), min(g.Group, g.Cols)
	s, z := make([]float32, n), make([]byte, n)
	return g.Each(rows, [2]int{0, g.Cols}, func(of [2]int, codes []uint8, scales, zeros []float32) {
		for r := range of[1] - of[0] {
			row := codes[r*g.Cols : (r+1)*g.Cols]
			for i, c := range row {
				row[i] = uint8(g.order(int(c)))
			}
			for i := range n {
				at := r*g.Cols + i*size
				if s[i] = scales[at]; g.Times != 0 {
					s[i] *= g.Times
				}
				if whole {
					z[i] = uint8(less)
				}
				if zeros != nil {
					z[i] = uint8(less + int(zeros[at]))
				}
			}
			at := 4 * (of[0] - rows[0] + r) * words
			p.Encode(dst[at:at+4*words], row, s, z)
		}
	})
}
