package run

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestLeftIsNotRead: when nobody waits for data any more, no read begins, for the one before may still use
// the loader. There is no loader here, so that one that began would end the process.
func TestLeftIsNotRead(t *testing.T) {
	d := newData(nil)
	d.leave()
	for range 100 {
		_, err := d.read(1)
		require.ErrorIs(t, err, errLeft)
	}
}
