// Package decide knows dates and durations as values and reads no clock.
package decide

import "time"

// Wait is how long, from a date.
func Wait(from time.Time) time.Duration {
	if time.Now().After(from) {
		return time.Since(from)
	}
	return time.Second
}
