package kernels

import (
	"encoding/binary"
	"fmt"
	"math"
)

// Rows that travel in eight bits.
const (
	EncodeRows Op = "encode_rows"
	DecodeRows Op = "decode_rows"
)

// Encodes reports whether rows of activations can travel in a precision: in e4m3, by blocks of a row.
func (p Precision) Encodes() bool {
	return p.Act.Number == E4M3 && p.Act.Rows == 1 && !p.Act.Global()
}

// CodesLen is how many bytes a row of k numbers is, of which so many share a scale: a code each, and behind
// them the scales in float32.
func CodesLen(k, share int) int { return k + 4*((k+share-1)/share) }

// Code is the byte of a number of e4m3, which x is.
func Code(x float32) byte {
	u := math.Float32bits(x)
	sign, a := byte(u>>24)&128, u&^(1<<31)
	switch {
	case a > 0x7f800000:
		return sign | 127
	case a < 0x3c800000: // below 2^-6, in steps of 2^-9
		return sign | byte(math.Float32frombits(a)*512)
	}
	return sign | byte(a>>20-0x3c8+8)
}

// OfCode are the numbers of e4m3 by their bytes.
var OfCode = [256]float32(e4m3s())

// Encode writes a row in codes; most is the greatest magnitude of a block.
func (g *Grain) Encode(row []float32, out []byte) {
	scales := out[len(row):]
	for at := 0; at < len(row); at += g.Columns {
		of := row[at:min(at+g.Columns, len(row))]
		most := float32(0)
		for _, x := range of {
			if a := float32(math.Abs(float64(x))); !(a <= most) {
				if most = a; most != most {
					break
				}
			}
		}
		by, back := g.Factor(most, 0)
		for i, x := range of {
			out[at+i] = Code(g.Number.Nearest(x * by))
		}
		binary.LittleEndian.PutUint32(scales[at/g.Columns*4:], math.Float32bits(back))
	}
}

// Decode reads it.
func (g *Grain) Decode(codes []byte, row []float32) {
	scales := codes[len(row):]
	for at := 0; at < len(row); at += g.Columns {
		back := math.Float32frombits(binary.LittleEndian.Uint32(scales[at/g.Columns*4:]))
		for i := at; i < min(at+g.Columns, len(row)); i++ {
			row[i] = OfCode[codes[i]] * back
		}
	}
}

var _ = register(Spec{Op: EncodeRows, Sig: "x[...,k]A -> y[...,m]u8", Source: "arXiv:2412.19437, section 3.3",
	Doc: "Each row as activations are rounded in Precisions[I[1]]: a byte of e4m3 a number, and behind " +
		"them the scale of each block in float32."}, Spec{Op: DecodeRows, Sig: "x[...,m]u8 -> y[...,k]A",
	Doc: "What encode_rows has written, rounded once to A: the numbers of rounded."})

func init() {
	check := func(rows, codes int) func(c *Call) error {
		return func(c *Call) error {
			p := c.Attr.I[1]
			if p < 1 || p >= len(Precisions) || !Precisions[p].Encodes() {
				return fmt.Errorf("precision %d has no rows in e4m3", p)
			}
			last := func(s []int) int { return s[len(s)-1] }
			of := [2][]int{c.In[0].Shape, c.Out[0].Shape}
			if want := CodesLen(last(of[rows]), Precisions[p].Act.Columns); last(of[codes]) != want {
				return fmt.Errorf("%d bytes for a row of %d numbers, want %d", last(of[codes]), last(of[rows]), want)
			}
			return nil
		}
	}
	extra[EncodeRows], extra[DecodeRows] = check(0, 1), check(1, 0)
}
