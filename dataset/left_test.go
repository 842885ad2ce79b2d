package dataset

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
)

// Documents that a filter leaves out are not learnt and are not bad: what comes, in the order of the data,
// are the others, in running text and as samples, whole and in pieces.
func TestLeftOut(t *testing.T) {
	for _, sized := range []bool{false, true} {
		src := sizedSource("s", 60)
		src.sized = sized
		var kept []Document
		for i := range src.docs {
			if i%3 == 1 {
				src.docs[i].Left = "length: too_short"
			} else {
				kept = append(kept, src.docs[i])
			}
		}
		others := textSource("s", len(kept))
		others.docs = kept
		cfg := pretrain(Weighted{src, 1})
		cfg.Sequential = true
		quarantine, err := OpenQuarantine("")
		require.NoError(t, err)
		cfg.Quarantine = quarantine
		want := stream(others, 2)
		at := 0
		for _, step := range steps(t, open(t, cfg), 15) {
			for _, b := range step {
				require.Equal(t, want[at:at+16], b.Tokens[:16], at)
				at += 32
			}
		}
		require.Empty(t, quarantine.List())
		cfg.Sequential = false
		in, err := Inspect(context.Background(), cfg, &byteEncoder{}, func(b Bad) { t.Error(b) })
		require.NoError(t, err)
		require.Equal(t, map[string]int64{"length: too_short": 20}, in.Left)
		require.Equal(t, int64(60), in.Documents)
	}
}
