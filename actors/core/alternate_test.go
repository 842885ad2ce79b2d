package core_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors/core"
)

// TestAlternate: of two actions one goes on until its next segment awaits something, or until it has ended.
func TestAlternate(t *testing.T) {
	on, waits := core.Segment{}, core.Segment{Await: []core.Issued{{}}}
	for _, c := range []struct {
		a, b []core.Segment
		want string
	}{
		{[]core.Segment{on, on, waits}, []core.Segment{on, waits}, "a0 a1 b0 a2 b1 "},
		{[]core.Segment{on, waits, waits, waits}, []core.Segment{on, waits}, "a0 b0 a1 b1 a2 a3 "},
		{[]core.Segment{on}, []core.Segment{on, waits, on, waits}, "a0 b0 b1 b2 b3 "},
		{nil, []core.Segment{on, waits}, "b0 b1 "}, {[]core.Segment{on, waits}, nil, "a0 a1 "}, {nil, nil, ""},
	} {
		got := ""
		for i, s := range core.Alternate([2][]core.Segment{c.a, c.b}) {
			got += fmt.Sprintf("%c%d ", 'a'+i, s)
		}
		require.Equal(t, c.want, got)
	}
	for range core.Alternate([2][]core.Segment{{on, on}, {on}}) {
		break // whoever goes through may stop
	}
}
