package hydra

import (
	"strings"
	"testing"

	"github.com/lfactor/lfactor/configs/source"
	"github.com/stretchr/testify/require"
)

// faults is a sink that keeps what is wrong.
type faults struct {
	source.Sink
	whys []string
}

func (f *faults) Fail(_ source.Origin, key, why, try string) { f.whys = append(f.whys, why) }

func (f *faults) Faults() int { return len(f.whys) }

func TestEvalList(t *testing.T) {
	for text, want := range map[string]string{"[0]*3+[1]*2": "0 0 0 1 1", "2*([0]+[1,2])": "0 1 2 0 1 2",
		" [ 1 , 2 ] ": "1 2", "[]": "", "[1+2*3]": "7", "[1]*0": ""} {
		n, err := evalList(text)
		require.NoError(t, err, text)
		var words []string
		for _, item := range n.Content {
			words = append(words, item.Value)
		}
		require.Equal(t, want, strings.Join(words, " "), text)
	}
	for _, text := range []string{"", "[1", "[1]*[2]", "1+[2]", "[[1]]", "[1]*99999999", "os.system", "[1]]",
		"(1", strings.Repeat("(", 100)} {
		_, err := evalList(text)
		require.Error(t, err, text)
	}
}

// FuzzInterpolation holds that any text is resolved or refused with its place.
func FuzzInterpolation(f *testing.F) {
	for _, seed := range []string{"${act:silu}", "${oc.env:A,${hidden_size}}",
		"${moe_freq:\"[0]*3+[1]*58\"}", "${.x}${..y}", "${${${", "${a.b}", "${num_layers}}",
		"${oc.env:LOONGFORGE_PATH}/x"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		l := &faults{}
		h := Overrides(l, nil, nil)
		h.Tree.Put("num_layers", &Node{Value: source.ScalarNode("4")})
		h.Tree.Put("a", &Node{Value: source.ScalarNode(text)})
		h.Tree.Put("b", &Node{Value: source.ScalarNode("${a}" + text)})
		h.Tree.Put("c", &Node{Value: source.ListNode([]string{text, "${b}"})})
		h.Resolve()
		for _, why := range l.whys {
			require.NotEmpty(t, why)
		}
	})
}
