package kernels

import (
	"fmt"
	"math"
)

// The operations of scales that follow from steps before.
const (
	// LargestTo is what a number that is a maximum over microbatches and ranks is gathered by.
	LargestTo     Op = "largest_to"
	Greatest      Op = "greatest"
	DelayedScales Op = "delayed_scales"
)

// Delayed scales of a weight [1, DelayedAt+3·h] are a choice (ChoiceStay is 0), of which these numbers are
// other: for activations, weight and gradients of outputs the greatest magnitude of the last h steps, 0
// before the first, and where the next step's go in the h magnitudes of each, which begin at DelayedAt.
const (
	DelayedMost = 4 // and the two behind it
	DelayedNext = 7
	DelayedAt   = ChoiceLen
	delayedOf   = 3
)

// Operands whose magnitudes are kept, in the order of DelayedMost.
const (
	keptAct = iota
	keptWeight
	keptGrad
)

// DelayedLen is how many numbers the delayed scales of a weight are with a history of so many steps.
func DelayedLen(history int) int { return DelayedAt + delayedOf*history }

// Remember takes the greatest magnitudes of a step into delayed scales; one that is not finite is left out,
// so that the scale stays (TransformerEngine's _default_sf_compute).
func Remember(scales, most []float32) {
	h := (len(scales) - DelayedAt) / delayedOf
	at := int(scales[DelayedNext]) % h
	for i := range delayedOf {
		of := scales[DelayedAt+i*h:][:h]
		if m := most[i]; m-m == 0 {
			of[at] = m
		} else {
			of[at] = scales[DelayedMost+i]
		}
		scales[DelayedMost+i] = 0
		for _, m := range of {
			scales[DelayedMost+i] = max(scales[DelayedMost+i], m)
		}
	}
	scales[DelayedNext] = float32((at + 1) % h)
}

// GrainsOf are how the first and the second operand of a product of a call are rounded, whose delayed scales
// or choice are operand i.
func GrainsOf(c *Call, product, i int) (first, second Grain) {
	p := Precisions[c.Attr.I[1]]
	first, second = p.Grains(product)
	if first.Chance {
		n, draw := NoiseOf(c, product)
		if first.Noise = &n; draw != nil {
			n.Draw = uint64(draw.I64()[0])
		}
	}
	t := optional(c.In, i)
	if !p.Delayed || t == nil {
		return first, second
	}
	of, v := KeptAt(product), t.F32()
	first.Kept, second.Kept = true, true
	first.Most, second.Most = v[of[0]], v[of[1]]
	return first, second
}

// KeptAt are the places in delayed scales of the greatest magnitudes of the two operands of a product.
func KeptAt(product int) [2]int {
	of := [][2]int{OperandsForward: {keptAct, keptWeight}, OperandsDX: {keptGrad, keptWeight},
		OperandsDW: {keptGrad, keptAct}}[product]
	return [2]int{DelayedMost + of[0], DelayedMost + of[1]}
}

var _ = register(Spec{Op: LargestTo, Sig: "x[...]f32 clip[3]f64? -> y[...]f32",
	Doc: "y = max(x, y), number by number; with I[0] = 0, y = x, as add_to. With overflow = 1 nothing changes."},
	Spec{Op: Greatest, Sig: "x[...,k]A w[*]A dy[...,n]A -> e[1,c]f32", Doc: "The greatest magnitudes of x, w " +
		"and dy in e[0, 0], e[0, 1] and e[0, 2], and 0 in all others: +Inf where a number is not finite, 0 of none."},
	Spec{Op: DelayedScales, Sig: "e[1,c]f32 clip[3]f64 -> scales[1,c]f32",
		Source: "TransformerEngine, DelayedScaling (amax_compute_algo max)", Doc: "Remember in place: the magnitudes " +
			"e[0, 0:3] of a step go into histories of (c-16)/3 steps each, and the greatest of each history is what the next " +
			"step's scales follow from. One that is not finite leaves the scale as it is. With overflow = 1 nothing changes."})

func init() {
	long := func(n int) error {
		if n < DelayedLen(1) || (n-DelayedAt)%delayedOf != 0 {
			return fmt.Errorf("%d numbers of delayed scales, want 16 and three histories", n)
		}
		return nil
	}
	extra[DelayedScales] = func(c *Call) error { return long(c.Out[0].Len()) }
	extra[Greatest] = func(c *Call) error {
		if c.Out[0].Len() < delayedOf {
			return fmt.Errorf("room for %d magnitudes, want 3 at least", c.Out[0].Len())
		}
		return nil
	}
}

// GreatestOf is the larger of most and the greatest magnitude of numbers, +Inf where one is not finite.
func GreatestOf(most float32, v []float32) float32 {
	for _, x := range v {
		if x-x != 0 {
			return float32(math.Inf(1))
		}
		most = max(most, float32(math.Abs(float64(x))))
	}
	return most
}
