package dataset

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lfactor/lfactor/dataset/pack"
)

// Packing puts each item into one bin, none over the capacity, in the order of the items.
func TestPackProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		capacity := rapid.IntRange(1, 100).Draw(t, "capacity")
		lengths := rapid.SliceOfN(rapid.IntRange(1, capacity), 1, 60).Draw(t, "lengths")
		sum := 0
		for _, n := range lengths {
			sum += n
		}
		for _, p := range []Packing{PackNone, PackFirstFit, PackBestFit} {
			bins := p.pack(lengths, capacity)
			var all []int
			halves := 0
			for i, b := range bins {
				fill := 0
				for _, item := range b {
					fill += lengths[item]
				}
				require.LessOrEqual(t, fill, capacity)
				require.True(t, slices.IsSorted(b))
				require.True(t, i == 0 || bins[i-1][0] < b[0])
				if 2*fill <= capacity {
					halves++
				}
				all = append(all, b...)
			}
			slices.Sort(all)
			require.Len(t, slices.Compact(all), len(lengths))
			if p != PackNone {
				require.LessOrEqual(t, halves, 1, "two bins that are half empty would have been one")
			} else {
				require.Len(t, bins, len(lengths))
			}
		}
	})
}

// By hand: first fit takes the first row with room, best fit the fullest.
func TestPackByHand(t *testing.T) {
	lengths := []int{4, 8, 1, 4, 2, 1}
	require.Equal(t, [][]int{{0, 2, 3, 5}, {1, 4}}, PackFirstFit.pack(lengths, 10))
	require.Equal(t, [][]int{{0, 2, 3, 5}, {1, 4}}, PackBestFit.pack(lengths, 10))
	require.Equal(t, [][]int{{0, 2}, {1}}, PackBestFit.pack([]int{5, 7, 3}, 8))
	require.Equal(t, [][]int{{0}, {1, 2}}, PackBestFit.pack([]int{5, 6, 2}, 8))
	require.Equal(t, [][]int{{0, 2}, {1}}, PackFirstFit.pack([]int{5, 6, 2}, 8))
}

// A packed row holds whole conversations, each a segment of its own with the answer to be learnt, and padding.
func TestSFTRows(t *testing.T) {
	src := chatSource("s", 37)
	for _, packing := range []Packing{PackNone, PackFirstFit, PackBestFit} {
		cfg := sft(Weighted{src, 1})
		cfg.Packing = packing
		seen := map[int64]bool{}
		for _, step := range steps(t, open(t, cfg), 30) {
			for _, b := range step {
				loss := 0
				k := 0
				for i, id := range b.SampleIDs {
					from, to := b.CuSeqlens[i], b.CuSeqlens[i+1]
					require.Less(t, from, to)
					require.Equal(t, from/32, (to-1)/32, "a segment lies in one row")
					for p := from; p < to; p++ {
						require.Equal(t, p-from, b.Positions[p])
					}
					if id < 0 {
						require.Equal(t, slices.Repeat([]int32{-7}, int(to-from)), b.Tokens[from:to])
						require.Equal(t, slices.Repeat([]int32{IgnoreLabel}, int(to-from)),
							b.Labels[from:to])
						continue
					}
					require.False(t, seen[id], "sample %d comes twice", id)
					seen[id] = true
					require.Equal(t, id, b.Origins[k].Sample)
					doc := src.docs[b.Origins[k].Document]
					k++
					ids, mask, err := cfg.Chat.EncodeMessages(doc.Messages, nil, nil)
					require.NoError(t, err)
					require.Equal(t, ids, b.Tokens[from:to])
					for j := range ids {
						want := int32(IgnoreLabel)
						if j+1 < len(ids) && mask[j+1] {
							want = ids[j+1]
							loss++
						}
						require.Equal(t, want, b.Labels[int(from)+j])
					}
				}
				require.Equal(t, loss, b.LossTokens)
				require.Equal(t, int32(64), b.CuSeqlens[len(b.CuSeqlens)-1])
			}
		}
	}
}

// Conversations that are too long are cut, or left out; those that do not fit the template are quarantined.
func TestSFTLongAndBad(t *testing.T) {
	src := chatSource("s", 20)
	src.docs[3].Messages[1].Content = string(make([]byte, 100))
	src.docs[5].Messages[1].Role = "fail"
	for _, drop := range []bool{false, true} {
		cfg := sft(Weighted{src, 1})
		cfg.DropLong, cfg.Budget.Count, cfg.Packing, cfg.GlobalBatch, cfg.MicroBatch, cfg.Passes = drop, 1,
			PackNone, 1, 1, 1
		l := open(t, cfg)
		n := 18
		if !drop {
			n = 19
		}
		lengths := map[int64]int32{}
		for _, step := range steps(t, l, n) {
			lengths[step[0].Origins[0].Document] = step[0].CuSeqlens[1]
		}
		require.Equal(t, []Bad{{"s", 5, Place{"s", 5}, "roles must alternate"}}, l.Quarantined())
		if drop {
			require.NotContains(t, lengths, int64(3))
		} else {
			require.Equal(t, int32(32), lengths[3])
		}
	}
}

// TestAlike: rows have samples of one kind, as each kind is packed alone, and are in the order of their first
// samples; with one kind they are what they are without.
func TestAlike(t *testing.T) {
	for _, p := range Packings() {
		m := &maker{feeder: &feeder{cfg: LoaderConfig{SeqLen: 10, Packing: p}}}
		var items []item
		var sizes []pack.Item
		for i, n := range []int{4, 3, 6, 4, 2, 2, 5, 1} {
			items = append(items, item{tokens: n, alike: []string{"wide", "tall"}[i%2]})
			sizes = append(sizes, pack.Item{Tokens: n})
		}
		seen := map[int]bool{}
		first := -1
		for _, bin := range m.alike(items, sizes) {
			n := 0
			for _, i := range bin {
				require.Equal(t, items[bin[0]].alike, items[i].alike, p)
				require.False(t, seen[i], p)
				seen[i], n = true, n+items[i].tokens
			}
			require.LessOrEqual(t, n, 10, p)
			require.Less(t, first, bin[0], p)
			first = bin[0]
		}
		require.Len(t, seen, len(items), p)
		for i := range items {
			items[i].alike = "square"
		}
		require.Equal(t, p.rows(sizes, pack.Limits{Tokens: 10, Open: packOpen}), m.alike(items, sizes), p)
	}
	m := &maker{feeder: &feeder{cfg: LoaderConfig{SeqLen: 10, Packing: PackFirstFit}}}
	items := []item{{tokens: 4, alike: "a"}, {tokens: 4, alike: "b"}, {tokens: 6, alike: "a"}, {tokens: 5,
		alike: "b"}}
	require.Equal(t, [][]int{{0, 2}, {1, 3}}, m.alike(items, []pack.Item{{Tokens: 4}, {Tokens: 4},
		{Tokens: 6}, {Tokens: 5}}))
}
