package kernels

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"
)

// PackedForm is a way in which a matrix that does not learn lies in memory in few bits, row by row: codes of 4 or
// 8 bits from the low ones on, filled up to whole 32-bit words; then a float32 scale for each group of columns;
// then, with Zeros, the groups' zeros as bytes, filled up likewise. A number is (Table[code] - zero)·scale, in float32.
type PackedForm struct {
	Name                string
	Bits                int
	Table               []float32 // of 1<<Bits numbers
	Zeros               bool
	Group               int // columns that share a scale where nothing else says how many; 0 is a whole row
	Source, Description string
}

// nf4 are the quantiles of a normal distribution that arXiv:2305.14314 has, and fp4 bitsandbytes' numbers of
// four bits over the greatest.
var (
	nf4 = []float32{-1, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635,
		-0.18477343022823334, -0.09105003625154495, 0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634,
		0.33791524171829224, 0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1}
	fp4 = []float32{0, 0.0052083334885537624, 0.6666666865348816, 1, 0.3333333432674408, 0.5, 0.1666666716337204, 0.25,
		0, -0.0052083334885537624, -0.6666666865348816, -1, -0.3333333432674408, -0.5, -0.1666666716337204, -0.25}
	twos = []float32{0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6}
)

// PackedForms are the forms, by the number that an operation has for them; 0 is none.
var PackedForms = []PackedForm{{Name: "none"},
	{Name: "nf4", Bits: 4, Table: nf4, Group: 64, Source: "arXiv:2305.14314",
		Description: "4-bit quantiles of a normal distribution, a float32 scale for 64 columns"},
	{Name: "fp4", Bits: 4, Table: fp4, Group: 64, Source: "bitsandbytes 0.50",
		Description: "4-bit numbers of bitsandbytes, a float32 scale for 64 columns"},
	{Name: "int4", Bits: 4, Table: whole(16), Zeros: true, Group: 128, Source: "arXiv:2210.17323, arXiv:2306.00978",
		Description: "4-bit integers as GPTQ and AWQ have them, scale and zero for each group"},
	{Name: "int8", Bits: 8, Table: whole(256), Zeros: true, Source: "arXiv:2208.07339",
		Description: "8-bit integers, a float32 scale for each row"},
	{Name: "fp8", Bits: 8, Table: e4m3s(), Group: 128, Source: "arXiv:2412.19437",
		Description: "e4m3, a float32 scale for 128 columns"},
	{Name: "e2m1", Bits: 4, Table: twos, Group: 16, Source: "NVFP4, as compressed-tensors has it",
		Description: "4-bit numbers of two exponent bits, a float32 scale for 16 columns"},
}

// whole are the numbers from 0 on.
func whole(n int) []float32 {
	out := make([]float32, n)
	for i := range out {
		out[i] = float32(i)
	}
	return out
}

// e4m3s are the numbers of FP8 by their bytes.
func e4m3s() []float32 {
	out := make([]float32, 256)
	for b := range out {
		m, e := float64(b&7), b>>3&15
		x := math.Ldexp(m, -9)
		if e > 0 {
			x = math.Ldexp(m+8, e-10)
		}
		if b&127 == 127 {
			x = math.NaN()
		}
		out[b] = float32(math.Copysign(x, 1-float64(b>>7)*2))
	}
	return out
}

// Packing is a form with the columns that share a scale; the zero value is none.
type Packing struct{ Form, Group int }

// PackingOf reads what String writes; without a group it is the form's own.
func PackingOf(text string) (Packing, error) {
	name, rest, grouped := strings.Cut(text, "/")
	i := slices.IndexFunc(PackedForms, func(f PackedForm) bool { return f.Name == name })
	if i < 0 {
		return Packing{}, fmt.Errorf("packing %q: there is no such form", text)
	}
	p := Packing{i, PackedForms[i].Group}
	if grouped {
		if _, err := fmt.Sscanf(rest, "%d", &p.Group); err != nil || p.Group < 0 {
			return Packing{}, fmt.Errorf("packing %q: want a form and the columns of a group", text)
		}
	}
	return p, nil
}

// String is the form's name and the columns of a group, 0 for a whole row.
func (p Packing) String() string { return fmt.Sprintf("%s/%d", PackedForms[p.Form].Name, p.Group) }

// Attr are the constants of an operation on a matrix that lies so.
func (p Packing) Attr() Attr { return Attr{I: [4]int{0, p.Form, p.Group}} }

// PackingAt is the inverse.
func PackingAt(a Attr) Packing { return Packing{a.I[1], a.I[2]} }

// Groups is how many a row of k columns has.
func (p Packing) Groups(k int) int {
	if p.Group == 0 {
		return min(k, 1)
	}
	return (k + p.Group - 1) / p.Group
}

// Words are the 32-bit words of a row of k columns: of codes, and of all of it.
func (p Packing) Words(k int) (codes, all int) {
	f := &PackedForms[p.Form]
	codes = (k*f.Bits + 31) / 32
	all = codes + p.Groups(k)
	if f.Zeros {
		all += (p.Groups(k) + 3) / 4
	}
	return codes, all
}

// Encode sets a row in memory from the codes of its columns and the scales and zeros of its groups; zeros are
// not read of a form without.
func (p Packing) Encode(row, codes []byte, scales []float32, zeros []byte) {
	f, k := &PackedForms[p.Form], len(codes)
	words, all := p.Words(k)
	clear(row[:4*all])
	for c, code := range codes {
		if f.Bits == 8 {
			row[c] = code
		} else {
			row[c/2] |= code << (4 * (c % 2))
		}
	}
	for g, s := range scales {
		binary.LittleEndian.PutUint32(row[4*(words+g):], math.Float32bits(s))
	}
	if f.Zeros {
		copy(row[4*(words+len(scales)):], zeros)
	}
}

// Group is scale and zero of the group of a row of k columns.
func (p Packing) group(row []byte, k, g int) (scale, zero float32) {
	words, _ := p.Words(k)
	scale = math.Float32frombits(binary.LittleEndian.Uint32(row[4*(words+g):]))
	if PackedForms[p.Form].Zeros {
		zero = float32(row[4*(words+p.Groups(k))+g])
	}
	return scale, zero
}

// Decode sets dst to the numbers of columns [from, from+len(dst)) of a row of k.
func (p Packing) Decode(dst []float32, row []byte, k, from int) {
	f := &PackedForms[p.Form]
	size := p.Group
	if size == 0 {
		size = k
	}
	for c := from; c < from+len(dst); {
		scale, zero := p.group(row, k, c/size)
		for end := min((c/size+1)*size, from+len(dst)); c < end; c++ {
			code := row[c*f.Bits/8]
			if f.Bits == 4 {
				code = code >> (4 * (c % 2)) & 15
			}
			dst[c-from] = (f.Table[code] - zero) * scale
		}
	}
}

// Pack sets a row in memory to numbers, each to the nearest that its group has: of the greatest magnitude in the group
// over the greatest number of the form, of two the one with the lower code. Integers are symmetric around the middle.
func (p Packing) Pack(row []byte, x []float32) {
	f, k := &PackedForms[p.Form], len(x)
	size := p.Group
	if size == 0 {
		size = k
	}
	n := p.Groups(k)
	codes, scales, zeros := make([]byte, k), make([]float32, n), make([]byte, n)
	near := newNearest(f)
	for g := range n {
		part := x[g*size : min((g+1)*size, k)]
		most := float32(0)
		for _, v := range part {
			if a := float32(math.Abs(float64(v))); a > most || a != a {
				most = a
			}
		}
		scales[g], zeros[g] = most/near.most, near.zero
		for i, v := range part {
			if scales[g] == 0 || scales[g] != scales[g] {
				codes[g*size+i] = near.code(0)
			} else {
				codes[g*size+i] = near.code(v / scales[g])
			}
		}
	}
	p.Encode(row, codes, scales, zeros)
}

// nearest finds codes.
type nearest struct {
	sorted []float32 // numbers in order
	codes  []byte
	most   float32 // the greatest magnitude on both sides of zero
	zero   byte
}

func newNearest(f *PackedForm) *nearest {
	n := &nearest{}
	if f.Zeros {
		n.zero = 1 << (f.Bits - 1)
	}
	for c, v := range f.Table {
		if v != v {
			continue
		}
		n.codes = append(n.codes, byte(c))
		n.most = max(n.most, v-float32(n.zero))
	}
	slices.SortStableFunc(n.codes, func(a, b byte) int {
		switch x, y := f.Table[a], f.Table[b]; {
		case x < y:
			return -1
		case x > y:
			return 1
		}
		return 0
	})
	for _, c := range n.codes {
		n.sorted = append(n.sorted, f.Table[c]-float32(n.zero))
	}
	return n
}

// code is that of the number nearest to v.
func (n *nearest) code(v float32) byte {
	i, _ := slices.BinarySearch(n.sorted, v)
	if i == len(n.sorted) {
		i--
	}
	if i > 0 {
		below, above := v-n.sorted[i-1], n.sorted[i]-v
		if below < above || below == above && n.codes[i-1] < n.codes[i] {
			i--
		}
	}
	return n.codes[i]
}
