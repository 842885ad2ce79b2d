package trained

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/stages/family"
)

// TestExportedConfig: an export has the config.json that the model came with, to the byte, and one of its
// own where settings of the run changed the model.
func TestExportedConfig(t *testing.T) {
	const src = "../../stages/family/testdata/gemma2"
	want, err := os.ReadFile(filepath.Join(src, "config.json"))
	require.NoError(t, err)
	for _, override := range []string{"", "model.overrides.final_logit_softcapping=5"} {
		args := []string{"model.path=" + src, "data.paths=x", "data.seq_len=8"}
		if override != "" {
			args = append(args, override)
		}
		cfg, err := configs.Load(configs.Request{Args: args})
		require.NoError(t, err)
		m, err := family.Build(cfg.Model, 8)
		require.NoError(t, err)
		dst := t.TempDir()
		e := &Exporter{Cfg: cfg, Model: m, Side: src}
		require.NoError(t, e.sideFiles(dst))
		got, err := os.ReadFile(filepath.Join(dst, "config.json"))
		require.NoError(t, err)
		if override == "" {
			require.Equal(t, string(want), string(got))
			continue
		}
		back, err := configs.ReadModel(dst)
		require.NoError(t, err)
		m, err = family.Build(back, 0)
		require.NoError(t, err)
		require.Equal(t, 5.0, m.Spec.LogitCap)
		require.Equal(t, cfg.Model.LayerTypes, back.LayerTypes)
	}
}
