package collective

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestSends pins who sends how much to whom, in which round, for groups small enough for paper.
func TestSends(t *testing.T) {
	require.Equal(t, []Send{{0, 0, 1, 4}, {0, 1, 2, 4}, {0, 2, 0, 4}, {1, 0, 1, 4}, {1, 1, 2, 4},
		{1, 2, 0, 4}},
		Ring(AllGather, 3, 10), "shares are rounded up")
	require.Equal(t, Ring(AllGather, 3, 10), Ring(ReduceScatter, 3, 10))
	all := Ring(AllReduce, 3, 12)
	require.Len(t, all, 12)
	require.Equal(t, Send{3, 2, 0, 4}, all[11])
	// 1 → 0 and 3 → 2, then 2 → 0 and 4 → 0; back in the opposite order
	require.Equal(t, []Send{{0, 1, 0, 7}, {0, 3, 2, 7}, {1, 2, 0, 7}, {2, 4, 0, 7}, {3, 0, 4, 7},
		{4, 0, 2, 7},
		{5, 2, 3, 7}, {5, 0, 1, 7}}, Tree(5, 7))
	require.Empty(t, Tree(1, 7))
	require.Equal(t, []Send{{0, 0, 1, 5}, {0, 1, 2, 5}, {0, 2, 0, 5}, {1, 0, 2, 5}, {1, 1, 0, 5}, {1, 2, 1, 5}},
		Exchange(3, 10))
	require.Equal(t, []Send{
		{0, 0, 1, 4}, {0, 1, 0, 4}, {0, 2, 3, 4}, {0, 3, 2, 4}, // halves inside each host
		{1, 0, 2, 2}, {1, 2, 0, 2}, {2, 0, 2, 2}, {2, 2, 0, 2}, // the first half between hosts, in two shares
		{1, 1, 3, 2}, {1, 3, 1, 2}, {2, 1, 3, 2}, {2, 3, 1, 2},
		{3, 0, 1, 4}, {3, 1, 0, 4}, {3, 2, 3, 4}, {3, 3, 2, 4},
	}, Hierarchical(4, 2, 8))
}

// TestPlay follows a few sends by hand: an end carries one message at a time each way, a member waits for
// its own earlier rounds only, and what is on its way has left the sender.
func TestPlay(t *testing.T) {
	link := func(int, int) Link { return Link{1, 2} }
	require.Equal(t, 7.0, Play(2, []Send{{0, 0, 1, 3}}, link))
	require.Equal(t, 13.0, Play(3, []Send{{0, 0, 1, 3}, {0, 0, 2, 3}}, link), "one after the other out of 0")
	require.Equal(t, 13.0, Play(3, []Send{{0, 0, 2, 3}, {0, 1, 2, 3}}, link), "one after the other into 2")
	require.Equal(t, 7.0, Play(2, []Send{{0, 0, 1, 3}, {0, 1, 0, 3}}, link), "both ways at once")
	require.Equal(t, 14.0, Play(3, []Send{{0, 0, 1, 3}, {1, 1, 2, 3}}, link), "1 passes on what has come")
	require.Equal(t, 13.0, Play(3, []Send{{0, 0, 1, 3}, {1, 0, 2, 3}}, link),
		"0 has sent, and need not wait for its arrival")
	require.Equal(t, 7.0, Play(4, []Send{{0, 0, 1, 3}, {1, 2, 3, 3}}, link),
		"2 takes part in no earlier round")
	require.Zero(t, Play(3, nil, link))
	fast := func(from, to int) Link { return map[bool]Link{true: {1, 2}, false: {0, 1}}[from == 0] }
	require.Equal(t, 10.0, Play(3, []Send{{0, 0, 1, 3}, {1, 1, 2, 3}}, fast))
}

// TestForms: the closed forms by hand.
func TestForms(t *testing.T) {
	l := Link{1, 2}
	require.Equal(t, 9.0, l.Of(4))
	require.Equal(t, 2*2*9.0, RingTime(AllReduce, 3, 12, l))
	require.Equal(t, 2*9.0, RingTime(AllGather, 3, 12, l))
	require.Equal(t, 2*3*25.0, TreeTime(5, 12, l))
	require.Equal(t, 2*(1+2*6.0)+2*(0.5+3.0*3), HierarchicalTime(4, 2, 12, l, Link{0.5, 3}))
}
