package torch

import (
	"encoding/binary"
	"math"
	"strings"

	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/checkpoint"
)

// gain is a norm that Hugging Face has as factors and Megatron, whose norms of these models are factors
// less one, without the one: that of Gated DeltaNet's output. Numbers of few bits are rounded by that.
const gain = "linear_attn.norm.weight"

// shifted shows the tensors of a source whose names end so with a number added.
type shifted struct {
	checkpoint.Source
	suffix string
	plus   float32
	types  map[string]checkpoint.DType
}

func shift(src checkpoint.Source, suffix string, plus float32) checkpoint.Source {
	s := &shifted{src, suffix, plus, map[string]checkpoint.DType{}}
	for _, t := range src.Tensors() {
		if strings.HasSuffix(t.Name, suffix) {
			s.types[t.Name] = t.DType
		}
	}
	if len(s.types) == 0 {
		return src
	}
	return s
}

// ReadRanges implements checkpoint.Source.
func (s *shifted) ReadRanges(name string, ranges [][2]int, dst []byte) error {
	if err := s.Source.ReadRanges(name, ranges, dst); err != nil {
		return err
	}
	le := binary.LittleEndian
	switch s.types[name] {
	case checkpoint.F32:
		for i := 0; i < len(dst); i += 4 {
			le.PutUint32(dst[i:], math.Float32bits(math.Float32frombits(le.Uint32(dst[i:]))+s.plus))
		}
	case checkpoint.BF16:
		for i := 0; i < len(dst); i += 2 {
			le.PutUint16(dst[i:], tensor.BF16Bits(tensor.BF16Value(le.Uint16(dst[i:]))+s.plus))
		}
	case checkpoint.F16:
		for i := 0; i < len(dst); i += 2 {
			le.PutUint16(dst[i:], tensor.F16Bits(tensor.F16Value(le.Uint16(dst[i:]))+s.plus))
		}
	}
	return nil
}
