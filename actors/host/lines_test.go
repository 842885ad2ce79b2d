package host

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors/layout"
	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/stages/family"
	encoding "github.com/lfactor/lfactor/stages/family/autoencoders"
	"github.com/lfactor/lfactor/stages/latent"
	"github.com/lfactor/lfactor/stages/optim"
)

// TestLinesAreShared: with context parallelism each of four ranks computes a quarter of the convolutions and
// the attention of a U-Net and of an autoencoder, keeps hardly more than a quarter of their activations, and sends lines to its
// neighbours; the levels of noise, which every rank computes, are the rest.
func TestLinesAreShared(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"unet", "unet-xl", "kl", "wan"} {
		type figures struct {
			flops, activations int64
			halos              int
		}
		of := func(cp int) (f figures) {
			open := openDenoiser
			if name == "kl" || name == "wan" {
				open = openAutoencoder
			}
			g, frames := open(t, name), 1
			if name == "wan" {
				frames = 9
			}
			if g.m.Denoiser.Takes != nil {
				g.m.Denoiser.Process.Size = [3]int{frames, 64, 64}
			}
			l, err := layout.New(&layout.Design{Model: g.m, Mesh: layout.MeshOf(&configs.Plan{PP: 1, DP: 1,
				TP: 1, CP: cp,
				EP: 1, ETP: 1}), Schedule: "1f1b", Micro: 1, Rows: frames * 64 * 64,
				Dims: map[string]int{family.CanvasHeight: 64,
					family.CanvasWidth: 64}, Optim: optim.Config{Name: "adamw"}})
			require.NoError(t, err)
			for _, s := range l.Main(0).Segments(grad.F) {
				f.flops += s.Cost.Flops
				for _, n := range s.Comm {
					if n.Shift() != 0 {
						f.halos++
					}
				}
			}
			f.activations = l.Memory(0).Activations
			return f
		}
		one, four := of(1), of(4)
		require.Zero(t, one.halos)
		require.Greater(t, four.halos, 10, "every convolution of three lines reaches over")
		require.Less(t, float64(four.flops), 0.26*float64(one.flops), name)
		require.Less(t, float64(four.activations), 0.35*float64(one.activations), name)
	}
}

// TestLiveLinesAreShared: an autoencoder before a denoiser encodes a quarter of every picture on each of four ranks that
// share its tokens, or the widths of its layers.
func TestLiveLinesAreShared(t *testing.T) {
	t.Parallel()
	of := func(cp, tp int) (flops int64) {
		g := openDenoiser(t, "wan")
		a, err := latent.ReadFile(filepath.Join(autoencodersDir, "kl/config.json"))
		require.NoError(t, err)
		require.NoError(t, encoding.Before(g.m, a.Model(), [][3]int{{1, 64, 64}}, 0))
		l, err := layout.New(&layout.Design{Model: g.m, Mesh: layout.MeshOf(&configs.Plan{PP: 1, DP: 1,
			TP: tp, CP: cp, EP: 1,
			ETP: 1}), Schedule: "1f1b", Micro: 1, Rows: 256, Dims: map[string]int{"vae.size": 1},
			Frozen: func(name string) bool { return strings.HasPrefix(name, encoding.Component+".") },
			Optim:  optim.Config{Name: "adamw"}})
		require.NoError(t, err)
		for _, s := range l.Main(0).Segments(grad.F) {
			flops += s.Cost.Flops
		}
		return flops
	}
	for _, by := range [][2]int{{4, 1}, {1, 4}, {2, 2}} {
		// three heads of the denoiser are no four
		require.Less(t, float64(of(by[0], by[1])), 0.36*float64(of(1, 1)), "%v", by)
	}
}
