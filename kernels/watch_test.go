package kernels

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestChoose: a product above a limit takes a weight's operands as they are for so many steps behind the last look
// that finds it so; what is not finite does so whatever the limits; steps between looks only count.
func TestChoose(t *testing.T) {
	w := Watch{Limit: 0.1, Lost: 0.5, Every: 2, Stay: 3}
	require.True(t, w.On())
	require.Equal(t, w, WatchOf(w.Attr()))
	require.False(t, Watch{Every: 1, Stay: 1}.On())
	errors := func(squares, lost float32) []float32 {
		e := make([]float32, ChoiceLen)
		e[ErrorAt(1, ErrorSquares)], e[ErrorAt(1, ErrorOf)] = squares, 1
		e[ErrorAt(2, ErrorFlushed)], e[ErrorSeen] = lost*100, 100
		return e
	}
	c := make([]float32, ChoiceLen)
	var stays, nexts []float32
	for _, e := range [][]float32{errors(0.0099, 0), errors(1, 1), errors(0.0101, 0), errors(0, 0), errors(0,
		0),
		errors(0, 0), errors(0, 0.6), errors(0, 0), errors(0, 0.1)} {
		w.Choose(c, e)
		stays, nexts = append(stays, c[ChoiceStay]), append(nexts, c[ChoiceNext])
	}
	require.Equal(t, []float32{0, 0, 3, 2, 1, 0, 3, 2, 1}, stays)
	require.Equal(t, []float32{1, 0, 1, 0, 1, 0, 1, 0, 1}, nexts)
	require.EqualValues(t, 2, c[ChoiceFalls])
	require.InDelta(t, 0.1, c[ChoiceFlushed], 1e-6)
	c = make([]float32, ChoiceLen)
	nan := errors(float32(math.NaN()), 0)
	w.Choose(c, nan)
	require.EqualValues(t, []float32{3, 1}, c[:2])
	require.EqualValues(t, 1, c[ChoiceProduct])
}
