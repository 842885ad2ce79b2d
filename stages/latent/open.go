package latent

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"os"
	"path/filepath"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/checkpoint"
)

// configName is the file of a folder that says what the autoencoder is.
const configName = "config.json"

// Autoencoder is a model with its weights, in float32, on one backend. It is for one goroutine.
type Autoencoder struct {
	*Model
	// Chunk is how many frames of latents, and of the pixels that go with them, are computed at once; 0 is
	// all of a clip. Memory follows from it and not from the length of clips. Of pictures it means nothing.
	Chunk int

	run *grad.Runner
	sum string // of the settings and the weights
}

// Open reads an autoencoder's folder as diffusers writes it: config.json, and
// diffusion_pytorch_model.safetensors, or shards and their index. A parameter without a tensor, a tensor
// without a parameter and one of another shape are errors, all reported at once, each an *checkpoint.Error
// with the name. Weights of narrower floats are widened. The backend stays the caller's.
func Open(dir string, b kernels.Backend) (*Autoencoder, error) {
	c, err := ReadFile(filepath.Join(dir, configName))
	if err != nil {
		return nil, err
	}
	src, err := checkpoint.OpenDir(dir)
	if err != nil {
		return nil, err
	}
	defer src.Close() //nolint:errcheck // it was read only
	return load(c.Model(), src, dir, b)
}

// load gives a model the weights of a source; path is what errors call it.
func load(m *Model, src checkpoint.Source, path string, b kernels.Backend) (*Autoencoder, error) {
	params := m.Params()
	names, err := m.match(params, src, path)
	if err != nil {
		return nil, err
	}
	a := m.on(b)
	sum := sha256.New()
	sum.Write(Marshal(m.Config))
	for _, p := range params {
		if err := a.read(p, src, names[p.Name], path, sum); err != nil {
			a.Close()
			return nil, err
		}
	}
	a.sum = hex.EncodeToString(sum.Sum(nil))
	return a, nil
}

// on is the autoencoder on a backend, without weights yet.
func (m *Model) on(b kernels.Backend) *Autoencoder {
	return &Autoencoder{Model: m, run: grad.NewRunner(b, tensor.NewPool("latent", 0))}
}

// Random is the autoencoder with weights that values gives, so many numbers at a time: for measurements.
func (m *Model) Random(b kernels.Backend, values func(n int) []float32) (*Autoencoder, error) {
	a := m.on(b)
	for _, p := range m.Params() {
		t, err := a.run.Pool.New(p.Name, tensor.F32, p.Shape...)
		if err != nil {
			a.Close()
			return nil, err
		}
		kernels.Write(t, tensor.Of(tensor.F32, values(tensor.Len(p.Shape)), p.Shape...).Bytes())
		a.run.Params[p.Name] = t
	}
	return a, nil
}

// match finds the tensor of each parameter, under its name or its older one.
func (m *Model) match(params []*grad.Param, src checkpoint.Source, path string) (map[string]checkpoint.Info, error) {
	have, want, names := src.Tensors(), make([]checkpoint.Info, len(params)), map[string]checkpoint.Info{}
	for i := range have {
		file := have[i]
		if m.older != nil {
			have[i].Name = m.older(file.Name)
		}
		names[have[i].Name] = file
	}
	for i, p := range params {
		want[i] = checkpoint.Info{Name: p.Name, Shape: p.Shape}
	}
	return names, checkpoint.Match(path, want, have)
}

// dtypes are those that weights may have in files.
var dtypes = map[checkpoint.DType]tensor.DType{checkpoint.F32: tensor.F32, checkpoint.F16: tensor.F16,
	checkpoint.BF16: tensor.BF16}

// read brings a parameter to the backend, as float32, and adds it to a hash.
func (a *Autoencoder) read(p *grad.Param, src checkpoint.Source, in checkpoint.Info, path string, sum hash.Hash) error {
	d, ok := dtypes[in.DType]
	if !ok {
		return &checkpoint.Error{File: filepath.Join(path, in.File), Tensor: in.Name,
			Fault: checkpoint.Misshapen, Why: fmt.Sprintf("dtype %s, want F32, BF16 or F16", in.DType)}
	}
	raw := make([]byte, tensor.Len(p.Shape)*d.Size())
	if err := src.ReadRanges(in.Name, whole(p.Shape), raw); err != nil {
		return err
	}
	host := tensor.Make(tensor.F32, p.Shape...)
	tensor.Widen(d, raw, host.F32())
	sum.Write(host.Bytes())
	t, err := a.run.Pool.New(p.Name, tensor.F32, p.Shape...)
	if err != nil {
		return err
	}
	kernels.Write(t, host.Bytes())
	a.run.Params[p.Name] = t
	return nil
}

// Close gives the weights' memory back.
func (a *Autoencoder) Close() {
	for name, t := range a.run.Params {
		t.Release()
		delete(a.run.Params, name)
	}
}

// Save writes the autoencoder as a folder that diffusers and Open read: its config.json and its weights in float32.
func (a *Autoencoder) Save(dir string) error {
	params := a.Params()
	infos := make([]checkpoint.Info, len(params))
	for i, p := range params {
		infos[i] = checkpoint.Info{Name: p.Name, DType: checkpoint.F32, Shape: p.Shape}
	}
	w, err := checkpoint.NewWriterOf(checkpoint.DiffusersStem, dir, infos, 0)
	if err != nil {
		return err
	}
	defer w.Abort() //nolint:errcheck // after Commit it does nothing, and before it another error is returned
	for _, p := range params {
		host := tensor.Make(tensor.F32, p.Shape...)
		kernels.Read(a.run.Backend, host.Bytes(), a.run.Params[p.Name])
		if err := w.WriteRanges(p.Name, whole(p.Shape), host.Bytes()); err != nil {
			return err
		}
	}
	if err := os.WriteFile(filepath.Join(dir, configName), Marshal(a.Config), 0o644); err != nil {
		return err
	}
	return w.Commit()
}

// whole is the box of all of a tensor.
func whole(shape []int) [][2]int {
	l := make([][2]int, len(shape))
	for axis, n := range shape {
		l[axis] = [2]int{0, n}
	}
	return l
}
