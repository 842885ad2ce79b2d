package policies

import (
	"encoding/json"
	"os"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/stages/family"
)

// TestLooksAreTorchvisions: changed views are those of bench/golden/looks.py.
func TestLooksAreTorchvisions(t *testing.T) {
	b, err := os.ReadFile("testdata/looks.json")
	require.NoError(t, err)
	type changed struct {
		By     float32
		Pixels []float32
	}
	var want struct {
		Size                             [2]int
		Pixels                           []float32
		Brightness, Contrast, Saturation []changed
		Crop                             struct {
			Share, Top, Left float64
			Pixels           []float32
		}
	}
	require.NoError(t, json.Unmarshal(b, &want))
	for name, c := range map[string]struct {
		f    func([]float32, float32)
		want []changed
	}{"brightness": {brighter, want.Brightness}, "contrast": {contrasted, want.Contrast},
		"saturation": {saturated,
			want.Saturation}} {
		for _, w := range c.want {
			got := slices.Clone(want.Pixels)
			c.f(got, w.By)
			require.InDeltaSlice(t, w.Pixels, got, 1e-5, name)
		}
	}
	got := cropped(want.Pixels, want.Size, want.Crop.Share, want.Crop.Top, want.Crop.Left)
	require.InDeltaSlice(t, want.Crop.Pixels, got, 1e-5)
	require.Equal(t, want.Pixels, cropped(want.Pixels, want.Size, 1, 0, 0))
}

// TestChange: what is changed of a sample follows from its key alone, all observed steps of a camera are
// changed alike, another camera otherwise, and of many samples the share that is asked for loses its state.
func TestChange(t *testing.T) {
	view := make([]float32, 3*8*8)
	for i := range view {
		view[i] = float32(i%17)/8 - 1
	}
	x := &Robots{Policy: configs.Policy{Crop: 0.75, Brightness: 0.2, Contrast: 0.2, Saturation: 0.2,
		Stateless: 0.25},
		Size: [2]int{8, 8}, D: &family.Denoiser{Policy: family.Policy{Sight: &family.Sight{Views: 4, Steps: 2, Patches: 64,
			Pixels: 3,
			Size:   [2]int{8, 8}}}}}
	of := func(key uint64) *family.Encoded {
		e := &family.Encoded{Key: key, State: []float32{1, 2}, Views: [][]float32{view, view, view, view}}
		x.change(e, nil)
		return e
	}
	lost := 0
	for key := range uint64(400) {
		if of(key).State[0] == 0 {
			lost++
		}
	}
	require.InDelta(t, 100, lost, 30)
	a, b := of(3), of(3)
	require.Equal(t, a, b)
	require.Equal(t, a.Views[0], a.Views[2])
	require.NotEqual(t, a.Views[0], a.Views[1])
	require.NotEqual(t, a.Views[0], of(4).Views[0])
	require.Equal(t, float32(1.0/8-1), view[1]) // what was prepared stays
}

// TestPart: a policy acts on the middle of a view and learns of parts within it.
func TestPart(t *testing.T) {
	x := &Robots{Size: [2]int{5, 6}, D: &family.Denoiser{Policy: family.Policy{Sight: &family.Sight{Views: 1, Patches: 6,
		Pixels: 3,
		Size:   [2]int{2, 3}, Frame: [2]int{5, 6}, Jumps: true}}}}
	planes := make([]float32, 3*5*6)
	for i := range planes {
		planes[i] = float32(i)
	}
	// 3 rows and 3 columns are left: Python rounds 1.5 to 2
	require.Equal(t, []float32{14, 15, 16, 20, 21, 22}, x.part(planes, -1, -1)[:6])
	require.Equal(t, []float32{30, 31, 32, 36, 37, 38}, x.part(planes, 0, 0)[6:12])
	require.Equal(t, []float32{81, 82, 83, 87, 88, 89}, x.part(planes, 0.999, 0.999)[12:])
	require.True(t, x.changes())
	e := &family.Encoded{Views: [][]float32{planes}}
	x.change(e, nil)
	require.Len(t, e.Views[0], 18)
}
