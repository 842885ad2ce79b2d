package diffusion

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// words are an encoder that reads four words of a caption.
type words struct{ Captioner }

func (words) Length(caption string) (n, most int, err error) {
	return len(strings.Fields(caption)), 4, nil
}

// TestNotes: what is not read of captions, captions that are none, and pictures that are far smaller than what the model
// sees are said, each kind once; a run without a place for notes says nothing.
func TestNotes(t *testing.T) {
	var said strings.Builder
	x := &Pictures{Text: words{}, Sizes: [][3]int{{1, 64, 64}}, Upscale: true}
	show := func(captions ...string) {
		for _, c := range captions {
			require.NoError(t, x.notes.caption(x.Text, c))
		}
		x.notes.enlarged(1, 1, [3]int{1, 64, 64})
	}
	show("one two three four five", " ")
	require.Empty(t, said.String())
	x.Tell(&said)
	show("a b c d", "a cat")
	require.Equal(t, "note: a picture of 1×1 pixels is enlarged to 64×64, as are others that are small: set "+
		"diffusion.upscale to false to leave them out\n", said.String())
	x.notes.enlarged(17, 60, [3]int{1, 64, 64})
	said.Reset()
	show("a b c d", "one two three four five", "one two three four five six", "", " \n", "caf\xe9", "\xff")
	require.Equal(t, []string{
		`note: the text encoder reads 4 tokens of a caption, and one of 5 is cut, as are others that are longer: ` +
			`"one two three four five"`,
		`note: a caption is empty or blank, and its picture is taken as one without a caption, as others like it are: ` +
			`leave such samples out, or say with diffusion.caption_dropout how many should be`,
		`note: a caption is no valid UTF-8, and bytes that are none reach the model as U+FFFD, as those of others do: ` +
			`"caf\xe9"`, ""}, strings.Split(said.String(), "\n"))
}
