package unit

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestShort: three digits in the unit that suits, without an exponent.
func TestShort(t *testing.T) {
	for s, want := range map[float64]string{0: "0 µs", 2e-6: "2 µs", 0.0009999: "1 ms", 0.035: "35 ms", 0.9999: "1 s", 2.314: "2.31 s",
		59.94: "59.9 s", 2310: "2310 s", 123456: "123456 s"} {
		require.Equal(t, want, Short(s))
	}
}
