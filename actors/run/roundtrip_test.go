package run

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors/host"
	"github.com/lfactor/lfactor/actors/layout"
	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/stages/checkpoint"
	"github.com/lfactor/lfactor/stages/family"
	"github.com/lfactor/lfactor/stages/trained"
)

// TestRoundTrip: a Hugging Face directory of every family, loaded over pp=2 tp=2, saved, and exported again,
// has the same tensors to the last byte, under the same names.
func TestRoundTrip(t *testing.T) {
	models, err := filepath.Glob("../../stages/family/testdata/*/config.json")
	require.NoError(t, err)
	require.NotEmpty(t, models)
	for _, c := range models {
		src := filepath.Dir(c)
		t.Run(filepath.Base(src), func(t *testing.T) {
			dir := t.TempDir()
			// the golden tensors lie beside them
			for _, f := range []string{"config.json", "model.safetensors", configs.DescriptionFile} {
				b, err := os.ReadFile(filepath.Join(src, f))
				if f == configs.DescriptionFile && errors.Is(err, os.ErrNotExist) {
					continue
				}
				require.NoError(t, err)
				require.NoError(t, os.MkdirAll(filepath.Join(dir, "hf"), 0o755))
				require.NoError(t, os.WriteFile(filepath.Join(dir, "hf", f), b, 0o644))
			}
			m, err := configs.ReadModel(src)
			require.NoError(t, err)
			layers := fmt.Sprintf("[%d, %d]", m.Layers-m.Layers/2, m.Layers/2)
			experts := family.Mixture.Of(m).Experts
			switch { // experts too go to more ranks than one
			case experts > 0 && experts%2 == 0:
				layers += ", ep: 2"
			case experts > 0:
				layers += ", etp: 2"
			}
			roundTrip(t, dir, layers)
			a, err := checkpoint.OpenDir(filepath.Join(dir, "hf"))
			require.NoError(t, err)
			defer a.Close()
			b, err := checkpoint.OpenDir(filepath.Join(dir, "out"))
			require.NoError(t, err)
			defer b.Close()
			require.Equal(t, len(a.Tensors()), len(b.Tensors()))
			diff, err := checkpoint.Diff(a, b)
			require.NoError(t, err)
			require.Empty(t, diff)
		})
	}
}

func roundTrip(t *testing.T, dir, layers string) {
	t.Helper()
	text := fmt.Sprintf("model: {path: %q}\ndata: {paths: [none], tokenizer: none, seq_len: 8}\ntrain: "+
		"{steps: 0, global_batch: 2}\nplan: {pp: 2, tp: 2, layers: %s}\ncheckpoint: {dir: %q}\n",
		filepath.Join(dir, "hf"), layers, filepath.Join(dir, "ckpt"))
	cfg, err := configs.Load(configs.Request{File: "round.yaml", Text: []byte(text)})
	require.NoError(t, err)
	r := &Run{cfg: cfg}
	r.data = newData(r)
	r.job, err = layout.FromConfig(cfg)
	require.NoError(t, err)
	r.layout, err = layout.New(r.job)
	require.NoError(t, err)
	require.NoError(t, r.begin())
	defer r.start.close()
	o, closeAll, err := r.options(0)
	require.NoError(t, err)
	defer closeAll()
	o.Commit = func(step int64, parts []string, state []float64) error {
		return host.CommitShards(checkpoint.OS, cfg.Run.Checkpoint.Dir, step, parts,
			map[string]any{"config": cfg.Flat(), "state": state}, nil)
	}
	require.NoError(t, host.Run(r.layout, o))
	saved, err := checkpoint.Open(cfg.Run.Checkpoint.Dir)
	require.NoError(t, err)
	defer saved.Close()
	e := trained.Exporter{Cfg: cfg, Model: r.job.Model, Saved: saved, Hf: r.start.hf,
		Side: trained.SideDir(cfg)}
	require.NoError(t, e.Write(filepath.Join(dir, "out")))
}
