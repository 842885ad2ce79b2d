package optim

import (
	"maps"
	"math"
	"slices"

	"github.com/lfactor/lfactor/configs/source"
)

// wsdTails are the shapes of WSD's last part: the coefficient when a share w of it is done.
var wsdTails = map[string]func(w float64) float64{
	"exponential": func(w float64) float64 { return 2*math.Pow(0.5, w) - 1 },
	"linear":      func(w float64) float64 { return 1 - w },
	"cosine":      func(w float64) float64 { return 0.5 * (math.Cos(math.Pi*w) + 1) },
	"minus_sqrt":  func(w float64) float64 { return 1 - math.Sqrt(w) },
}

// wsd stays at Max and falls in the last WSDDecay of Decay steps.
var _ = func() bool {
	for _, name := range slices.Sorted(maps.Keys(wsdTails)) {
		source.Offer(source.Tails, name)
	}
	return RegisterRate(Rate{Name: "wsd", Source: scheduler + "; arXiv:2404.06395",
		After: decaying(func(l LR, n float64) float64 {
			start := float64(l.Decay - l.WSDDecay)
			if n <= start {
				return 1
			}
			return wsdTails[l.WSDStyle]((n - start) / float64(max(1, l.WSDDecay)))
		})})
}()
