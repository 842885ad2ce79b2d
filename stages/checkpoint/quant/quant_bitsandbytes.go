package quant

import (
	"encoding/json"
	"strings"

	"github.com/lfactor/lfactor/stages/checkpoint"
)

// Ends of the names of what bitsandbytes keeps of a matrix.
const (
	absmaxTail    = ".absmax"
	mapTail       = ".quant_map"
	nestedTail    = ".nested_absmax"
	nestedMapTail = ".nested_quant_map"
	stateTail     = ".quant_state.bitsandbytes__"
	bytesScale    = "SCB"
	bytesFormat   = "weight_format"
)

// bytesTimes is what bitsandbytes multiplies in place of dividing by 127.
const bytesTimes = 7.874015718698502e-3

var (
	_ = registerPacking(packing{name: "bitsandbytes-4bit", source: "bitsandbytes 0.50, QuantState", find: fourBits})
	_ = registerPacking(packing{name: "bitsandbytes-8bit", source: "bitsandbytes 0.50, Int8Params", find: eightBits})
)

// bnbState is what the file says of a matrix of four bits.
type bnbState struct {
	Type         string  `json:"quant_type"`
	Block        int     `json:"blocksize"`
	Shape        []int   `json:"shape"`
	NestedBlock  int     `json:"nested_blocksize"`
	NestedOffset float64 `json:"nested_offset"`
}

// bnbMatrix is one of four bits: codes, the first of two in the high half, lie row by row, and so many of
// them share a greatest magnitude, whichever rows they are of.
type bnbMatrix struct {
	f      *finder
	codes  checkpoint.Info
	absmax []float32
	bnbState
}

// fourBits takes a matrix in NF4 or FP4. arXiv:2305.14314.
func fourBits(f *finder, t checkpoint.Info) (*matrix, error) {
	absmax, ok := f.all[t.Name+absmaxTail]
	if !ok || t.DType != checkpoint.U8 {
		return nil, nil
	}
	m := &bnbMatrix{f: f, codes: f.take(t.Name)}
	var state checkpoint.Info
	for _, kind := range []string{"nf4", "fp4"} {
		if s := f.take(t.Name + stateTail + kind); s.Name != "" {
			state = s
		}
	}
	if state.Name == "" || state.DType != checkpoint.U8 || len(state.Shape) != 1 {
		return nil, f.misshapen(t.Name+stateTail+"nf4", "want the state of the matrix as bytes of JSON")
	}
	text, err := f.bytes(state, [2]int{0, state.Shape[0]})
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(text, &m.bnbState); err != nil {
		return nil, &checkpoint.Error{File: f.path, Tensor: state.Name, Fault: checkpoint.Malformed, Why: "state", Err: err}
	}
	if len(m.Shape) != 2 || m.Shape[0] < 1 || m.Shape[1] < 1 || m.Block < 2 || m.Block%2 != 0 ||
		m.Shape[1] > 1<<40/m.Shape[0] || checkpoint.BoxLen(checkpoint.Whole(t.Shape)) != (m.Shape[0]*m.Shape[1]+1)/2 {
		return nil, f.misshapen(t.Name, "U8 %v for a matrix %v in blocks of %d", t.Shape, m.Shape, m.Block)
	}
	table, err := f.all16(t.Name + mapTail)
	if err != nil {
		return nil, err
	}
	if m.absmax, err = m.magnitudes(f.take(absmax.Name)); err != nil {
		return nil, err
	}
	g := &Grid{Rows: m.Shape[0], Cols: m.Shape[1], Table: table, Read: m.read}
	if m.Shape[1]%m.Block == 0 {
		g.Group = m.Block
	}
	return &matrix{name: t.Name, shape: m.Shape, grid: g}, nil
}

// all16 reads the sixteen numbers of a code.
func (f *finder) all16(name string) ([]float32, error) {
	t := f.take(name)
	if t.DType != checkpoint.F32 || len(t.Shape) != 1 || t.Shape[0] != 16 {
		return nil, f.misshapen(name, "%s %v, want F32 [16]", t.DType, t.Shape)
	}
	return f.floats(t, [2]int{0, 16})
}

// magnitudes reads the greatest magnitudes of blocks, which may be kept in eight bits themselves.
func (m *bnbMatrix) magnitudes(t checkpoint.Info) ([]float32, error) {
	n := ceilDiv(m.Shape[0]*m.Shape[1], m.Block)
	if checkpoint.BoxLen(checkpoint.Whole(t.Shape)) != n || len(t.Shape) != 1 || t.DType != checkpoint.F32 && t.DType != checkpoint.U8 {
		return nil, m.f.misshapen(t.Name, "%s %v, want one for each of %d blocks", t.DType, t.Shape, n)
	}
	if t.DType == checkpoint.F32 {
		return m.f.floats(t, [2]int{0, n})
	}
	base := strings.TrimSuffix(t.Name, absmaxTail)
	outer, table := m.f.take(base+nestedTail), m.f.take(base+nestedMapTail)
	if m.NestedBlock < 1 || outer.DType != checkpoint.F32 || len(outer.Shape) != 1 ||
		outer.Shape[0] != ceilDiv(n, m.NestedBlock) || table.DType != checkpoint.F32 || len(table.Shape) != 1 ||
		table.Shape[0] != 256 {
		return nil, m.f.misshapen(base+nestedTail, "%s %v and a table %v, want F32 for each %d of %d, and 256",
			outer.DType, outer.Shape, table.Shape, m.NestedBlock, n)
	}
	codes, err := m.f.bytes(t, [2]int{0, n})
	if err != nil {
		return nil, err
	}
	by, err := m.f.floats(outer, [2]int{0, outer.Shape[0]})
	if err != nil {
		return nil, err
	}
	of, err := m.f.floats(table, [2]int{0, 256})
	if err != nil {
		return nil, err
	}
	out := make([]float32, n)
	for i, c := range codes {
		out[i] = float32(of[c]*by[i/m.NestedBlock]) + float32(m.NestedOffset) // rounded twice, as there
	}
	return out, nil
}

// read is a Grid's: whole rows, which follow each other, at once.
func (m *bnbMatrix) read(rows, cols [2]int, codes []uint8, scales, _ []float32) error {
	k, width := m.Shape[1], cols[1]-cols[0]
	each := 1
	if width == k {
		each = rows[1] - rows[0]
	}
	for r := rows[0]; r < rows[1]; r += each {
		from, n := r*k+cols[0], each*width
		at := [2]int{from / 2, ceilDiv(from+n, 2)}
		raw, err := m.run(at)
		if err != nil {
			return err
		}
		for c := range n {
			i := from + c
			b := raw[i/2-at[0]]
			if i%2 == 0 {
				b >>= 4
			}
			codes[c], scales[c] = b&15, m.absmax[i/m.Block]
		}
		codes, scales = codes[n:], scales[n:]
	}
	return nil
}

// run reads bytes [at[0], at[1]) of the codes, whose tensor has one or two axes of which one is all.
func (m *bnbMatrix) run(at [2]int) ([]byte, error) {
	box := checkpoint.Whole(m.codes.Shape)
	for a, n := range m.codes.Shape {
		if n > 1 {
			if box[a] = at; checkpoint.BoxLen(box) != at[1]-at[0] {
				return nil, m.f.misshapen(m.codes.Name, "%v, want all bytes along one axis", m.codes.Shape)
			}
			break
		}
	}
	return m.f.bytes(m.codes, box...)
}

// eightBits takes a matrix of bytes with the greatest magnitude of each row, whose layer is named by them:
// weight, SCB and, of what bitsandbytes may turn on devices, weight_format.
func eightBits(f *finder, t checkpoint.Info) (*matrix, error) {
	base, ok := strings.CutSuffix(t.Name, "weight")
	scale, has := f.all[base+bytesScale]
	if !ok || !has || t.DType != checkpoint.I8 || len(t.Shape) != 2 {
		return nil, nil
	}
	f.take(t.Name)
	f.take(scale.Name)
	if scale.DType != checkpoint.F32 || checkpoint.BoxLen(checkpoint.Whole(scale.Shape)) != t.Shape[0] || len(scale.Shape) != 1 {
		return nil, f.misshapen(scale.Name, "%s %v, want F32 with a number for each row of %v", scale.DType,
			scale.Shape, t.Shape)
	}
	if form := f.take(base + bytesFormat); form.Name != "" {
		raw, err := f.bytes(form, checkpoint.Whole(form.Shape)...)
		if err != nil {
			return nil, err
		}
		if form.DType != checkpoint.U8 || len(raw) != 1 || raw[0] != 0 {
			return nil, &checkpoint.Error{File: f.path, Tensor: form.Name, Fault: checkpoint.Malformed,
				Why: "rows that are turned for a device are not read", Try: "save the model from the processor"}
		}
	}
	g := &Grid{Rows: t.Shape[0], Cols: t.Shape[1], Table: signedBytes, Group: t.Shape[1], Times: bytesTimes}
	g.Read = func(rows, cols [2]int, codes []uint8, scales, _ []float32) error {
		if err := f.src.ReadRanges(t.Name, [][2]int{rows, cols}, codes); err != nil {
			return err
		}
		s, err := f.floats(scale, rows)
		if err != nil {
			return err
		}
		spread(scales, s, rows, cols, 1, t.Shape[1])
		return nil
	}
	return &matrix{name: t.Name, shape: t.Shape, grid: g}, nil
}
