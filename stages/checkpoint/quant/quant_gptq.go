package quant

import (
	"strings"

	"github.com/lfactor/lfactor/stages/checkpoint"
)

// Ends of the names of what GPTQ and AWQ keep of a matrix [n k]: words, zeros and scales lie as [k n].
const (
	wordsTail = ".qweight"
	zerosTail = ".qzeros"
	scalesEnd = ".scales"
	groupsEnd = ".g_idx"
)

var _ = registerPacking(packing{name: "gptq", source: "AutoGPTQ 0.7, GPTQModel 5", find: gptq})

// gptqMatrix is one of GPTQ's: words [k·bits/32 n] have the columns of the matrix as one stream of bits from
// the low ones on, zeros [groups n·bits/32] its rows. arXiv:2210.17323.
type gptqMatrix struct {
	f                    *finder
	words, zeros, scales checkpoint.Info
	n, k, bits, groups   int
	group                []uint32 // of each column, which act-order mixes; nil for neighbours
	more                 uint32   // what the first form of the format left out of its zeros
}

// gptq takes a matrix that GPTQ made. Scales are float16, and so is what its library computes: float32 is
// that before the rounding.
func gptq(f *finder, t checkpoint.Info) (*matrix, error) {
	base, ok := strings.CutSuffix(t.Name, wordsTail)
	zeros, scales := f.all[base+zerosTail], f.all[base+scalesEnd]
	if !ok || t.DType != checkpoint.I32 || len(t.Shape) != 2 || len(scales.Shape) != 2 || len(zeros.Shape) != 2 ||
		t.Shape[1] != scales.Shape[1] {
		return nil, nil // AWQ's words have rows of the matrix in one
	}
	m := &gptqMatrix{f: f, words: f.take(t.Name), zeros: f.take(zeros.Name), scales: f.take(scales.Name),
		n: t.Shape[1], groups: scales.Shape[0]}
	if f.config.Format != "gptq_v2" {
		m.more = 1
	}
	if _, float := checkpoint.FloatDecoder(scales.DType); m.n == 0 || m.groups == 0 || float == nil ||
		zeros.DType != checkpoint.I32 || zeros.Shape[0] != m.groups || 32*zeros.Shape[1]%m.n != 0 {
		return nil, f.misshapen(zeros.Name, "%s %v beside scales %s %v, want I32 with a zero of 2, 3, 4 or 8 bits "+
			"for each scale", zeros.DType, zeros.Shape, scales.DType, scales.Shape)
	}
	m.bits = 32 * zeros.Shape[1] / m.n
	if m.bits != 2 && m.bits != 3 && m.bits != 4 && m.bits != 8 || 32*t.Shape[0]%m.bits != 0 {
		return nil, f.misshapen(zeros.Name, "%v is %d bits for each of %d, want 2, 3, 4 or 8", zeros.Shape, m.bits, m.n)
	}
	m.k = 32 * t.Shape[0] / m.bits
	g := &Grid{Rows: m.n, Cols: m.k, Table: wholeNumbers(m.bits, 0), Zeros: true, Read: m.read}
	if err := m.order(f.take(base+groupsEnd), g); err != nil {
		return nil, err
	}
	return &matrix{name: base + ".weight", shape: []int{m.n, m.k}, grid: g}, nil
}

// order reads the groups of columns; neighbours are found to be so.
func (m *gptqMatrix) order(t checkpoint.Info, g *Grid) (err error) {
	size := ceilDiv(m.k, m.groups)
	if t.Name == "" {
		if m.k%m.groups != 0 {
			return m.f.misshapen(m.scales.Name, "%v groups for %d columns", m.scales.Shape, m.k)
		}
		g.Group = size
		return nil
	}
	if t.DType != checkpoint.I32 || len(t.Shape) != 1 || t.Shape[0] != m.k {
		return m.f.misshapen(t.Name, "%s %v, want I32 with the group of each of %d columns", t.DType, t.Shape, m.k)
	}
	if m.group, err = m.f.words(t, [2]int{0, m.k}); err != nil {
		return err
	}
	neighbours := true
	for c, x := range m.group {
		if x >= uint32(m.groups) {
			return m.f.misshapen(t.Name, "column %d is of group %d, and there are %d", c, x, m.groups)
		}
		neighbours = neighbours && int(x) == c/size
	}
	if neighbours {
		m.group, g.Group = nil, size
	}
	return nil
}

// read is a Grid's.
func (m *gptqMatrix) read(rows, cols [2]int, codes []uint8, scales, zeros []float32) error {
	first := cols[0] * m.bits / 32
	words, err := m.f.words(m.words, [2]int{first, ceilDiv(cols[1]*m.bits, 32)}, rows)
	if err != nil {
		return err
	}
	all := [2]int{0, m.groups}
	s, err := m.f.floats(m.scales, all, rows)
	if err != nil {
		return err
	}
	zFirst := rows[0] * m.bits / 32
	zEnd := ceilDiv(rows[1]*m.bits, 32)
	z, err := m.f.words(m.zeros, all, [2]int{zFirst, zEnd})
	if err != nil {
		return err
	}
	n, size, i := rows[1]-rows[0], ceilDiv(m.k, m.groups), 0
	for r := range n {
		for c := cols[0]; c < cols[1]; c++ {
			g := c / size
			if m.group != nil {
				g = int(m.group[c])
			}
			codes[i] = uint8(bitsAt(words, r, n, c*m.bits-32*first, m.bits))
			scales[i] = s[g*n+r]
			zero := bitsAt(z, g*(zEnd-zFirst), 1, (rows[0]+r)*m.bits-32*zFirst, m.bits) + m.more
			if m.f.config.Sym && m.more == 1 && zero == 1<<(m.bits-1)+1 {
				return m.f.misshapen(m.zeros.Name, "zeros of %d, where sym says that each is %d: they are those of the "+
					"second form of the format; set checkpoint_format to gptq_v2 in quantization_config", zero, zero-1)
			}
			zeros[i] = float32(zero & (1<<m.bits - 1)) // -1, which the first form has for 0, is all ones
			i++
		}
	}
	return nil
}

// bitsAt are some bits of a stream of words that lie step apart, from first on.
func bitsAt(words []uint32, first, step, at, bits int) uint32 {
	v := words[first+at/32*step] >> (at % 32)
	if over := at%32 + bits - 32; over > 0 {
		v |= words[first+(at/32+1)*step] << (bits - over)
	}
	return v & (1<<bits - 1)
}
