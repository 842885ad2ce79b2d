package dataset

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// stuckEncoder comes to no end on a text with an x.
type stuckEncoder struct{ byteEncoder }

func (e *stuckEncoder) TryEncode(text string, addSpecial bool) ([]int32, error) {
	if strings.Contains(text, "x") {
		return nil, fmt.Errorf("pattern (a+)+b: %w", ErrStuck)
	}
	return e.Encode(text, addSpecial), nil
}

// TestStuckEncoder: a text on which the tokenizer comes to no end ends the step with an error that names the
// document, and is not taken for bad data.
func TestStuckEncoder(t *testing.T) {
	for _, sized := range []bool{false, true} {
		src := longSource("s", 12)
		src.sized = sized
		src.docs[7].Text = "an x"
		l, err := OpenLoader(pretrain(Weighted{src, 1}), &stuckEncoder{})
		for step := int64(0); err == nil && step < 60; step++ {
			_, err = l.Step(step)
		}
		require.ErrorIs(t, err, ErrStuck)
		require.ErrorContains(t, err, "s at byte 7: pattern (a+)+b")
		if l != nil {
			require.Empty(t, l.Quarantined())
			l.Close()
		}
	}
}
