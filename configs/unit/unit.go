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
func Count(n float64) string {
	for _, u := range []struct {
		v float64
		s string
	}{{1e12, " T"}, {1e9, " B"}, {1e6, " M"}, {1e3, " k"}} {
		if n >= u.v {
			return fmt.Sprintf("%.3g%s", n/u.v, u.s)
		}
	}
	return fmt.Sprintf("%.0f", n)
}

// Percent writes a share.
func Percent(x float64) string { return fmt.Sprintf("%.2f%%", 100*x) }

// Bytes is a number of bytes in decimal units, as 2.37 GB.
func Bytes(n float64) string {
	for _, u := range []struct {
		size float64
		name string
	}{{1e12, "TB"}, {1e9, "GB"}, {1e6, "MB"}, {1e3, "kB"}} {
		if n >= u.size {
			return fmt.Sprintf("%.3g %s", n/u.size, u.name)
		}
	}
	return fmt.Sprintf("%.0f B", n)
}
