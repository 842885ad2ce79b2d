package configs

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/lfactor/lfactor/configs/source"
)

// OptimizerGroup is parameters with rules of their own: factors on optimizer.lr and optimizer.weight_decay,
// an optimizer in place of optimizer.kind, and a norm to clip by.
type OptimizerGroup struct {
	Pattern   string
	LR, Decay float64
	Decays    bool    // Decay was given
	Kind      string  // "" for optimizer.kind
	Clip      float64 // the group's own gradient norm is held to it; 0 is optimizer.clip_grad with all others
}

// ParseGroup reads one of optimizer.groups: a pattern, and lr=, decay=, clip= and optimizer= behind it.
func ParseGroup(text string) (g OptimizerGroup, err error) {
	words := strings.Fields(text)
	if len(words) < 2 {
		return g, fmt.Errorf("%q, want a pattern and what is other for it, as *.to_q.weight lr=0.1", text)
	}
	g = OptimizerGroup{Pattern: words[0], LR: 1, Decay: 1}
	given := map[string]bool{}
	for _, w := range words[1:] {
		key, value, _ := strings.Cut(w, "=")
		if given[key] {
			return g, fmt.Errorf("%q: %s stands twice", text, key)
		}
		given[key] = true
		if key == "optimizer" {
			if kinds := source.Offered(source.Optimizers); !slices.Contains(kinds, value) {
				return g, fmt.Errorf("%q: want one of %s", w, strings.Join(kinds, ", "))
			}
			g.Kind = value
			continue
		}
		x, err := strconv.ParseFloat(value, 64)
		if err != nil || !(x >= 0 && x <= 1e6) || key == "clip" && x == 0 {
			return g, fmt.Errorf("%q: want lr= or decay= and a factor of at least 0, or clip= and a norm above 0", w)
		}
		switch key {
		case "lr":
			g.LR = x
		case "decay":
			g.Decay, g.Decays = x, true
		case "clip":
			g.Clip = x
		default:
			return g, fmt.Errorf("%q: a group has lr=, decay=, clip= and optimizer=", w)
		}
	}
	return g, nil
}

// ParsedGroups are optimizer.groups, which were checked.
func (o *Optimizer) ParsedGroups() (out []OptimizerGroup) {
	for _, text := range o.Groups {
		g, err := ParseGroup(text)
		if err != nil {
			panic("configs: a group that was checked: " + err.Error())
		}
		out = append(out, g)
	}
	return out
}
