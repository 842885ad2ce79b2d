package calibrate

import (
	"fmt"
	"strings"

	"github.com/lfactor/lfactor/topology/cost"
	"github.com/lfactor/lfactor/topology/machine"
)

// bounds are what any device has of a rate, from an old processor to more than the fastest accelerator; a
// fit that ends at one of them explains something else than a device.
var bounds = [3]struct {
	name, unit  string
	least, most float64
}{
	{"arithmetic", "FLOP/s", 1e8, 1e16},
	{"memory bandwidth", "B/s", 2e8, 2e13},
	{"overhead of a call", "s", 2e-8, 1e-2},
}

// rates are the three that are fitted, in the order of bounds.
func rates(m *cost.Machine) [3]*float64 { return [3]*float64{&m.Flops, &m.Bandwidth, &m.Overhead} }

const (
	// settled is how far two fits may be apart, as a ratio, for both to be believed. The overhead of a call
	// is a small part of most segments, so three times that is allowed of it.
	settled = 1.25
	// rounds are the most that are measured until two fits agree
	rounds = 6
	// worst is the largest mean relative error of a fit that describes a machine
	worst = 0.5
)

// settle measures until two fits agree: one of the quickest runs of each segment in all rounds but the last,
// and one with the last round too. m gets the rates of the second. Other programs only ever make a segment slower,
// so more rounds come nearer to the machine. It is an error if the fits do not come together, or end at a bound.
func settle(m *cost.Machine, measure func() ([]Timed, error)) (Fit, error) {
	load := machine.NewLoad()
	var all []Timed
	var before [3]float64
	var why []string
	for round := range rounds {
		got, err := measure()
		if err != nil {
			return Fit{}, err
		}
		all = Quietest(append(all, got...))
		fit := FitRates(m, all)
		fit.Rounds, fit.Others = round+1, load.Others()
		if why = doubts(m, before, fit); len(why) == 0 {
			return fit, nil
		}
		for i, x := range rates(m) {
			before[i] = *x
		}
	}
	text := fmt.Sprintf("this machine could not be described in %d rounds: %s", rounds, strings.Join(why, "; "))
	if o := load.Others(); o > busy {
		text += fmt.Sprintf(" (other programs took %.0f %% of its processors)", 100*o)
	}
	return Fit{}, fmt.Errorf("%s; stop other programs and run it again, or use fewer --threads", text)
}

// doubts says what speaks against a fit; before are the rates of the round before, zeros in the first.
func doubts(m *cost.Machine, before [3]float64, fit Fit) (out []string) {
	for i, x := range rates(m) {
		b, far := bounds[i], settled
		if i == len(bounds)-1 {
			far = 1 + 3*(settled-1)
		}
		switch v := *x; {
		case v <= b.least || v >= b.most:
			out = append(out, fmt.Sprintf("%s of %.3g %s is none that a device has", b.name, v, b.unit))
		case before[i] == 0 || v > before[i]*far || v < before[i]/far:
			out = append(out, fmt.Sprintf("%s was %.3g %s in one round and %.3g in the next", b.name, before[i],
				b.unit, v))
		}
	}
	if fit.Error > worst {
		out = append(out, fmt.Sprintf("three rates explain the segments to %.0f %% only", 100*fit.Error))
	}
	return out
}

// busy is the share of a machine's processors from which on other programs are worth a word.
const busy = 0.1

// Warning says that other programs ran, "" if they hardly did.
func (f Fit) Warning() string {
	if f.Others < busy {
		return ""
	}
	return fmt.Sprintf("other programs took %.0f %% of the processors meanwhile: the rates may be low", 100*f.Others)
}

// Quietest keeps the quickest run of each segment: other programs only ever make one slower.
func Quietest(all []Timed) (out []Timed) {
	at := map[[3]float64]int{}
	for _, x := range all {
		key := [3]float64{x.Flops, x.Bytes, x.Calls}
		i, known := at[key]
		switch {
		case !known:
			at[key] = len(out)
			out = append(out, x)
		case x.Seconds < out[i].Seconds:
			out[i] = x
		}
	}
	return
}
