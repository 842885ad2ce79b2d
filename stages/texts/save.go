package texts

import (
	"errors"
	"os"
	"path/filepath"
	"strings"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/checkpoint"
)

// shardBytes is the size of shards that transformers writes by default.
const shardBytes = 5e9

// words are transformers' names of the types that weights are written in.
var words = map[tensor.DType]string{tensor.F32: "float32", tensor.BF16: "bfloat16", tensor.F16: "float16"}

// Write writes an encoder as transformers' save_pretrained does, with weights of type d, which is f32, bf16 or f16:
// config.json and model.safetensors, in shards where it is large. Value fills dst with all of a parameter.
func (m *Model) Write(dir string, d tensor.DType, value func(p *grad.Param, dst []float32) error) error {
	params := m.Params()
	infos := make([]checkpoint.Info, len(params))
	in := checkpoint.DType(strings.ToUpper(d.String()))
	for i, p := range params {
		infos[i] = checkpoint.Info{Name: p.Name, DType: in, Shape: p.Shape}
	}
	sink, err := checkpoint.NewWriter(dir, infos, shardBytes)
	if err != nil {
		return err
	}
	for _, p := range params {
		wide := make([]float32, tensor.Len(p.Shape))
		if err := value(p, wide); err != nil {
			return errors.Join(err, sink.Abort())
		}
		raw := make([]byte, len(wide)*d.Size())
		tensor.Narrow(d, wide, raw)
		if err := sink.WriteRanges(p.Name, rowsOfTensor(p.Shape, 0, p.Shape[0]), raw); err != nil {
			return errors.Join(err, sink.Abort())
		}
	}
	if err := sink.Commit(); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "config.json"), m.Config(words[d]), 0o644)
}

// Save writes the encoder in the type that it was opened in.
func (e *Encoder) Save(dir string) error {
	return e.Write(dir, e.dtype, func(p *grad.Param, dst []float32) error {
		t := e.run.Params[p.Name]
		raw := make([]byte, t.Size())
		kernels.Read(e.run.Backend, raw, t)
		tensor.Widen(t.DType, raw, dst)
		return nil
	})
}
