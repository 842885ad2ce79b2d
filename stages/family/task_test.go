package family

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestTasks: each kind of model has its own task, and only models of language write and have a perplexity.
func TestTasks(t *testing.T) {
	hosted := &Denoiser{}
	hosted.Hosted, hosted.Canvas, hosted.Sight = true, true, &Sight{}
	for want, m := range map[string]*Model{
		"language":      {},
		"diffusion":     {Denoiser: &Denoiser{Canvas: true}},
		"autoencoder":   {Denoiser: &Denoiser{Takes: func([3]int) error { return nil }}},
		"policy":        {Denoiser: &Denoiser{Policy: Policy{Sight: &Sight{}}}},
		"hosted policy": {Denoiser: hosted},
	} {
		task := m.Task()
		require.Equal(t, want, task.Name)
		require.Equal(t, want == "language", task.Writes, want)
		require.Equal(t, want == "language", task.Perplexity, want)
		require.Equal(t, m.Denoiser != nil && !m.Denoiser.Hosted, task.OwnRows, want)
	}
}
