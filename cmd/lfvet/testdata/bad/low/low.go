// Package low imports upwards, sideways, and a module it does not own.
package low

import (
	_ "example.com/bad/high"  // upwards
	_ "example.com/bad/other" // same layer, not on the line
	_ "example.com/bad/stray" // no line at all
	_ "example.com/owned"     // another package owns it
)

// Known is documented.
const Known = 1

type model struct{ Denoiser *int }

// Draws asks of which kind a model is, once without a reason.
func (m model) Draws() bool {
	if m.Denoiser == nil { //lfvet:kind the reason stands here
		return false
	}
	return m.Denoiser != nil
}
