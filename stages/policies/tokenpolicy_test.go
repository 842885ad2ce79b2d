package policies

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/dataset/token"
)

// TestCrowded: a token that means something else is not among those of actions, and what is said to set is
// the largest end that has none.
func TestCrowded(t *testing.T) {
	taken := func(ids ...int32) func(int32) string {
		return func(id int32) string {
			for _, x := range ids {
				if x == id {
					return "stands for an image"
				}
			}
			return ""
		}
	}
	for _, c := range []struct {
		ids      []int32
		why, try string
	}{{[]int32{100, 89}, "", ""},
		{[]int32{99}, "the token 99, which stands for an image, is one of those that stand for actions",
			"set it to 99, or lower"},
		{[]int32{90, 95, 82}, "the token 95, which stands for an image, is one of those that stand for actions",
			"set it to 82, or lower"},
		{[]int32{90, 80, 70, 60, 50, 40, 30, 20, 10, 5},
			"the token 90, which stands for an image, is one of those that stand for actions",
			"take another tokenizer: it has no place for them"}} {
		why, try := crowded(100, 10, taken(c.ids...))
		require.Equal(t, [2]string{c.why, c.try}, [2]string{why, try})
	}
}

// TestScribeFingerprint: samples have another print with another tokenizer of actions in the folder of the
// same name, and the same one wherever it lies.
func TestScribeFingerprint(t *testing.T) {
	of := func(dir string, change func(f *token.FAST)) string {
		f, err := token.OpenFAST("../../dataset/token/testdata/fast")
		require.NoError(t, err)
		change(f)
		x := &Robots{}
		x.Policy.Fast = dir
		return (&TokenPolicy{Robots: x, fast: f}).print("talk")
	}
	same := func(*token.FAST) {}
	require.Equal(t, of("a", same), of("b", same))
	require.NotEqual(t, of("a", same), of("a", func(f *token.FAST) { f.Scale++ }))
	require.NotEqual(t, of("a", same), of("a", func(f *token.FAST) { f.Least++ }))
}
