package plan

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestCheckMessages: the messages of a table are those that its actions ask for, in an order that ends; a
// table without any is right.
func TestCheckMessages(t *testing.T) {
	text, err := os.ReadFile("testdata/zb1p_2rank_compute.csv")
	require.NoError(t, err)
	p := parse(t, string(text))
	require.NoError(t, p.CheckMessages())
	low, err := p.Lower()
	require.NoError(t, err)
	require.NoError(t, low.CheckMessages())
	require.Equal(t, "SEND_F, RECV_F, SEND_B, RECV_B", low.Work().Left(low))
	require.Empty(t, p.Left(p))
	good := "0F0,0SEND_F0,0RECV_B0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0\n"
	require.NoError(t, parse(t, good).CheckMessages())
	for text, want := range map[string]string{
		"0F0,0RECV_B0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0\n": "rank 0 action 3: 0SEND_F0 " +
			"is missing",
		"0F0,0SEND_F0,0SEND_F0,0RECV_B0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0\n": "rank 0 action 2: 0SEND_F0 " +
			"is a message that",
		"0RECV_F0,0F0,0SEND_F0,0RECV_B0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0\n": "rank 0 action 0: 0RECV_F0 " +
			"is a message that",
		"0SEND_F0,0F0,0RECV_B0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0\n": "rank 0 action 0: 0SEND_F0 " +
			"sends what the rank has not made yet",
		"0F0,0SEND_F0,0B0,0RECV_B0\n1RECV_F0,1F0,1B0,1SEND_B0\n": "rank 0 action 3: 0RECV_B0 " +
			"comes after",
		"0F0,0RECV_B0,0SEND_F0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0\n": "waits for ever under " +
			"blocking sends: rank 0 at 0RECV_B0",
		"0F0,0SEND_F0,(0RECV_B0;0B0)OVERLAP_F_B\n1RECV_F0,1F0,1B0,1SEND_B0": "rank 0 action 2: 0RECV_B0 " +
			"is a message inside",
	} {
		require.ErrorContains(t, parse(t, text).CheckMessages(), want, text)
	}
}
