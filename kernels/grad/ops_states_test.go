package grad

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestStateBorders: rows of a state belong to a chunk's first sequence if that has begun before, else to
// none that computes anything; what is read for the next chunk belongs to the sequence that reaches the end.
// Tokens before the chunk keep the border that lies among them.
func TestStateBorders(t *testing.T) {
	for _, x := range []struct {
		why                 string
		cu                  []int32
		from, before, after int
		tokens              bool
		want                []int32
	}{
		{"one sequence goes on", []int32{0, 30}, 10, 4, 4, false, []int32{0, 18}},
		{"the first chunk", []int32{0, 30}, 0, 0, 4, false, []int32{0, 14}},
		{"the last chunk", []int32{0, 20}, 10, 4, 0, false, []int32{0, 14}},
		{"one begins in it", []int32{0, 13, 30}, 10, 4, 4, false, []int32{0, 7, 18}},
		{"one begins with it", []int32{0, 10, 30}, 10, 4, 4, false, []int32{0, 4, 18}},
		{"one ends with it", []int32{0, 20, 30}, 10, 4, 4, false, []int32{0, 18, 18}},
		{"padding behind the last", []int32{0, 13}, 10, 4, 4, false, []int32{0, 7}},
		{"padding alone", []int32{0, 3}, 10, 4, 4, false, []int32{0, 0}},
		{"one has just begun", []int32{0, 9, 30}, 10, 3, 0, true, []int32{0, 2, 13}},
		{"one has begun with the tokens", []int32{0, 7, 30}, 10, 3, 0, true, []int32{0, 0, 13}},
		{"long before them", []int32{0, 5, 30}, 10, 3, 0, true, []int32{0, 0, 13}},
	} {
		require.Equal(t, x.want, StateBorders(x.cu, x.from, 10, x.before, x.after, x.tokens), x.why)
	}
}
