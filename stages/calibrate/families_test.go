package calibrate

import (
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/kernels/cpu"
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/checkpoint"
	"github.com/lfactor/lfactor/stages/checkpoint/quant"
	"github.com/lfactor/lfactor/stages/family"
	_ "github.com/lfactor/lfactor/stages/family/all"
	"github.com/lfactor/lfactor/stages/sample"
)

// fold takes factors out of what gives a layer its rows, and gives them to the layer, as AWQ does, and rounds nothing.
var _ = register(Method{Name: "fold", block: func(b *blockOf) error {
	for _, in := range b.inputs {
		for _, name := range b.tensors(in) {
			if _, err := b.matrix(name); err != nil {
				return err
			}
		}
		by := make([]float64, len(in.mags))
		for j := range by {
			by[j] = 0.25 + float64(j%7)
		}
		back := b.behind(in)
		if back == nil {
			continue
		}
		for _, name := range b.tensors(in) {
			b.loaded[name].multiply(by)
		}
		if err := back(by); err != nil {
			return err
		}
	}
	for name, m := range b.loaded {
		for r := range b.job.infos[name].Shape[0] {
			if m == nil {
				break
			}
			for _, x := range m.w.RawRowView(r) {
				b.out.Changed[name] = append(b.out.Changed[name], float32(x))
			}
		}
	}
	return nil
}})

// logits are those of a source's weights.
func logits(t *testing.T, dir string, src checkpoint.Source, ids []int32) []float32 {
	conf, err := configs.ReadModel(dir)
	require.NoError(t, err)
	m, err := family.Build(conf, 0)
	require.NoError(t, err)
	w, err := m.OpenWeights(src, dir)
	require.NoError(t, err)
	g, err := sample.New(m, nil, tensor.F32, cpu.New(1), tensor.NewPool("test", 0),
		func(p *grad.Param, g family.Region, dst []float32) error {
			_, err := w.Read(p, g, dst)
			return err
		})
	require.NoError(t, err)
	defer g.Close()
	positions := make([]int32, len(ids))
	for i := range positions {
		positions[i] = int32(i)
	}
	z, err := g.AllLogits(ids, positions, []int32{0, int32(len(ids))})
	require.NoError(t, err)
	return z
}

// TestFamilies: of every golden model of text, methods round all linear layers that tokens reach, and what the layout's
// reader gives has the logits of before but for rounding to four bits: factors that AWQ takes from norms and matrices
// are those that it gives to the layers behind them, which without rounding (fold) changes nothing.
func TestFamilies(t *testing.T) {
	dirs, err := filepath.Glob("../family/testdata/*/config.json")
	require.NoError(t, err)
	folded := 0
	for _, file := range dirs {
		dir := filepath.Dir(file)
		conf, err := configs.ReadModel(dir)
		require.NoError(t, err)
		m, err := family.Build(conf, 0)
		require.NoError(t, err)
		if m.Vision != nil || m.Denoiser != nil {
			continue
		}
		t.Run(filepath.Base(dir), func(t *testing.T) {
			src, err := checkpoint.OpenDir(dir)
			require.NoError(t, err)
			defer src.Close()
			w, err := m.OpenWeights(src, dir)
			require.NoError(t, err)
			plain, err := quant.Dequantized(src, dir)
			require.NoError(t, err)
			job := Job{Model: m, Weights: w, Source: plain, Linear: m.Linears(), Group: 8,
				Backend: cpu.New(1)}
			for s := range int32(4) {
				ids := make([]int32, 24)
				for i := range ids {
					ids[i] = (int32(i)*(7+2*s) + s) % int32(min(conf.Vocab, 29))
				}
				job.Text = append(job.Text, ids)
			}
			before := logits(t, dir, plain, job.Text[0])
			for _, method := range Methods() {
				out, err := Run(job, method.Name)
				bound := 0.6
				if method.Name == "fold" && err == nil {
					out.Matrices, bound = nil, 1e-5
				}
				if len(job.Linear) == 0 {
					require.ErrorContains(t, err, "has a place")
					continue
				}
				require.NoError(t, err)
				folded += len(out.Changed)
				few, config, err := quant.Recode(plain, "awq", job.Group, out.Matrices, out.Changed)
				require.NoError(t, err)
				to := t.TempDir()
				text, err := os.ReadFile(file)
				require.NoError(t, err)
				text = append([]byte(`{"quantization_config": `+string(config)+","), text[1:]...)
				if conf.Description != "" {
					require.NoError(t, os.WriteFile(filepath.Join(to, configs.DescriptionFile), []byte(conf.Description), 0o644))
				}
				require.NoError(t, os.WriteFile(filepath.Join(to, "config.json"), text, 0o644))
				after := logits(t, to, few, job.Text[0])
				off, all := 0.0, 0.0
				for i, x := range before {
					off += math.Pow(float64(after[i]-x), 2)
					all += math.Pow(float64(x), 2)
				}
				require.Less(t, math.Sqrt(off/all), bound, method.Name)
			}
		})
	}
	require.Greater(t, folded, 50)
}
