// Package unit writes quantities as people read them.
package unit

import "fmt"

// Seconds writes a duration in the unit that suits it.
func Seconds(s float64) string {
	switch {
	case s >= 1:
		return fmt.Sprintf("%.3f s", s)
	case s >= 1e-3:
		return fmt.Sprintf("%.3f ms", s*1e3)
	}
	return fmt.Sprintf("%.1f µs", s*1e6)
}

// Short writes a duration in the unit that suits it, to three digits at most.
func Short(s float64) string {
	switch {
	case s >= 999.5:
		return fmt.Sprintf("%.0f s", s)
	case s >= 0.9995:
		return fmt.Sprintf("%.3g s", s)
	case s >= 0.9995e-3:
		return fmt.Sprintf("%.3g ms", s*1e3)
	}
	return fmt.Sprintf("%.3g µs", s*1e6)
}

// OfNanoseconds turns nanoseconds into seconds.
func OfNanoseconds(ns int64) float64 { return float64(ns) / 1e9 }

// Count prints a number with a metric suffix.
func Count(n float64) string { return suffixed(n, "", " T", " B", " M", " k") }

// Percent writes a share.
func Percent(x float64) string { return fmt.Sprintf("%.2f%%", 100*x) }

// Bytes is a number of bytes in decimal units, as 2.37 GB.
func Bytes(n float64) string { return suffixed(n, " B", " TB", " GB", " MB", " kB") }

// suffixed writes a number with the suffix of trillions, billions, millions or thousands, or of none of them.
func suffixed(n float64, none string, suffixes ...string) string {
	for i, at := range []float64{1e12, 1e9, 1e6, 1e3} {
		if n >= at {
			return fmt.Sprintf("%.3g%s", n/at, suffixes[i])
		}
	}
	return fmt.Sprintf("%.0f%s", n, none)
}
