// Package sim ranges over a map it was given by core.
package sim

import "example.com/bad/wide"

// Sum adds in no order.
func Sum() (s string) {
	for k := range wide.Table() {
		s += k
	}
	return s
}
