package topology

import (
	"encoding/json"
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestSpreadExperts: the published reference's own example comes out as there, and of 1,000 random loads the
// fullest device never has more than there, up to the reference's sums in float32. Every expert has a place,
// and no device more than its share.
func TestSpreadExperts(t *testing.T) {
	text, err := os.ReadFile("testdata/eplb.json")
	require.NoError(t, err)
	var want struct {
		Example struct {
			Load          [][]float64
			Expert, Count [][]int
		}
		Shapes [][5]int
		Most   []float64
	}
	require.NoError(t, json.Unmarshal(text, &want))
	for i, load := range want.Example.Load {
		got, err := SpreadExperts(load, 16, 4, 2, 8)
		require.NoError(t, err)
		require.Equal(t, want.Example.Expert[i], got.Expert)
		require.Equal(t, want.Example.Count[i], got.Count)
	}
	require.Len(t, want.Most, 1000)
	for seed, most := range want.Most {
		s := want.Shapes[seed%len(want.Shapes)]
		x := uint32(uint64(seed) * 2654435761)
		draw := func() int { x = 1664525*x + 1013904223; return int(x >> 16) }
		load := make([]float64, s[0])
		for i := range load {
			if seed%3 > 0 {
				load[i] = float64(draw() % 1000)
				continue
			}
			a, b := draw()%97, draw()%7
			load[i] = float64(a * b * b * b)
		}
		got, err := SpreadExperts(load, s[1], s[2], s[3], s[4])
		require.NoError(t, err)
		require.LessOrEqual(t, got.Most(load, s[4]), most*(1+1e-5)+1e-6, "seed %d: %v", seed, s)
		have := map[string]bool{}
		for p, e := range got.Expert {
			have[fmt.Sprint(e, " ", got.Copy[p])] = true
			require.Less(t, got.Copy[p], got.Count[e])
		}
		require.Len(t, have, s[1], "every copy lies in one place")
		for e := range load {
			require.True(t, have[fmt.Sprint(e, " 0")])
		}
	}
	for _, c := range []struct {
		places, groups, nodes, devices int
		why                            string
	}{{8, 3, 1, 2, "8 experts in 3 groups"}, {8, 1, 2, 3, "3 devices on 2 nodes"}, {7, 1, 1, 1, "7 places"},
		{10, 1, 1, 4, "10 places on 4 devices"}} {
		_, err := SpreadExperts(make([]float64, 8), c.places, c.groups, c.nodes, c.devices)
		require.ErrorContains(t, err, c.why)
	}
}
