package planner

import (
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors/layout"
	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/sim/rehearsal"
)

// TestRemedyOfPlan: what a plan that does not fit is advised to change makes one that fits, at once; where
// nothing does, that is said.
func TestRemedyOfPlan(t *testing.T) {
	m, err := rehearsal.Machine("h100")
	require.NoError(t, err)
	for _, c := range []struct {
		name  string
		args  []string
		bytes int64
		none  bool
	}{
		{"70B", []string{"model.name=llama/3.1-70b", "train.precision=bf16"}, int64(m.Least()), false},
		{"experts on replicas", []string{"model.name=qwen3-30b-a3b", "plan.dp=8", "plan.ep=8"}, int64(m.Least()), false},
		{"1B in little", []string{"model.name=llama/3.2-1b"}, 3 << 30, false},
		{"none", []string{"model.name=llama/3.2-1b"}, 1 << 20, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			cfg, err := configs.Load(configs.Request{Args: append([]string{"data.seq_len=2048", "data.paths=[none]",
				"data.tokenizer=none", "train.global_batch=16"}, c.args...)})
			require.NoError(t, err)
			room := func(int) int64 { return c.bytes }
			text := layout.Remedy(cfg, room, nil)
			if c.none {
				require.Contains(t, text, "no plan of up to 1024 times as many ranks fits")
				return
			}
			settings := regexp.MustCompile(`plan\.\S+=[^ ,]+`).FindAllString(text, -1)
			require.NotEmpty(t, settings, text)
			other, err := cfg.With(settings...)
			require.NoError(t, err)
			j, err := layout.FromConfig(other)
			require.NoError(t, err)
			l, err := layout.New(j)
			require.NoError(t, err)
			l.Budget(c.bytes)
			require.NoError(t, l.Fits(func() string { return strings.Join(settings, " ") }))
		})
	}
}
