package core

import "fmt"

// HoldingText is the numbers of a Holding in words.
func HoldingText(v []float64) string {
	h := holdingOf(0, v)
	return fmt.Sprintf("ready for step %d, with %d commits and %d copies", h.pending, len(h.verdicts), len(h.copies))
}
