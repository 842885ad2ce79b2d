package routing

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestSeats: tokens take turns among an expert's places, in order.
func TestSeats(t *testing.T) {
	s := SeatsOf([]int32{1, 0, 1, 2, 1})
	var got []int32
	for token := range 4 {
		got = append(got, s.Of(1, token), s.Of(0, token))
	}
	require.Equal(t, []int32{0, 1, 2, 1, 4, 1, 0, 1}, got)
	require.EqualValues(t, 3, s.Of(2, 7))
}
