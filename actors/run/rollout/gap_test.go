package rollout

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/kernels/objective"
	"github.com/lfactor/lfactor/stages/family"
)

// TestFresh: of an answer that several versions of the weights drew, the rows of the tokens are marked that the
// newest drew, and neither the prompt's, nor those that an environment said, nor padding.
func TestFresh(t *testing.T) {
	t.Parallel()
	c := &configs.Config{}
	c.Run.Train.MicroBatch, c.Run.Data.SeqLen, c.Run.Rollout.Max = 2, 10, 6
	r := &Source{Of: Of{Cfg: c, Draws: func() bool { return false }}, loss: objective.Lookup("grpo")}
	reward := 1.0
	several := &Answer{Version: 3, Versions: [][2]int64{{0, 3}, {2, 4}}, Reward: &reward,
		Prompt: []int32{7, 7, 7}, Answer: []int32{8, 8, 8, 8, 8}, LogProbs: make([]float32, 5),
		Heard: []Heard{{At: 3, N: 1}}}
	newest := &Answer{Version: 4, Reward: &reward, Prompt: []int32{7}, Answer: []int32{8, 8},
		LogProbs: make([]float32, 2)}
	of := func(step int64) (out []int) {
		mb, err := r.microbatch(step, []*Answer{several, newest}, 2, 7)
		require.NoError(t, err)
		rows := family.AnswersKey.Of(mb.More)
		for row := range mb.IDs {
			if rows.More[row*objective.Columns+objective.Fresh] != 0 {
				out = append(out, row)
			}
		}
		return out
	}
	// rows: 3 of the prompt, of which the last foretells the first token, 5 of the answer, and the other's
	require.Equal(t, []int{4, 6, 8, 9}, of(5), "tokens 2 and 4 of the first, all of the second")
	require.Equal(t, []int{2, 3}, of(4), "tokens 0 and 1 of the first")
	require.Empty(t, of(6))
	require.Equal(t, DrawnGap{Tokens: 4, Older: 2}, compared(5, []*Answer{several, newest}))
}
