package latent

import (
	"fmt"

	"github.com/lfactor/lfactor/stages/diffusers"
)

// Bounds of what a file may ask for; published autoencoders stay far below.
const (
	channelsMax = 1 << 14
	levelsMax   = 8
	layersMax   = 64
)

// number reports a count out of its bounds.
func number(f *diffusers.Faults, key string, v, low, high int) {
	if v < low || v > high {
		f.Add(key, fmt.Sprintf("set an integer from %d to %d", low, high), "%d is out of range", v)
	}
}

// numbers does so for a list, which may have from one entry to one a level.
func numbers(f *diffusers.Faults, key string, list []int, low, high int) {
	if len(list) < 1 || len(list) > levelsMax {
		f.Add(key, fmt.Sprintf("set a list of 1 to %d integers", levelsMax), "%d levels", len(list))
	}
	for _, v := range list {
		if v < low || v > high {
			number(f, key, v, low, high)
			return
		}
	}
}

// moments reports means and deviations of latents that do not fit z channels. Both may be absent together.
func moments(f *diffusers.Faults, mean, std []float64, z int) {
	const meanKey, stdKey = "latents_mean", "latents_std"
	for _, l := range []struct {
		key  string
		list []float64
	}{{meanKey, mean}, {stdKey, std}} {
		if l.list != nil && len(l.list) != z {
			f.Add(l.key, fmt.Sprintf("set %d numbers", z), "%d numbers for latents of %d channels", len(l.list), z)
		}
	}
	switch {
	case mean != nil && std == nil:
		f.Add(meanKey, "set both or neither", "%s belongs to it", stdKey)
	case mean == nil && std != nil:
		f.Add(stdKey, "set both or neither", "%s belongs to it", meanKey)
	}
	for _, v := range std {
		if !(v > 0) {
			f.Add(stdKey, "set deviations above 0", "%g is no deviation of latents", v)
			return
		}
	}
}
