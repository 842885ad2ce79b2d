package texts

import (
	"fmt"

	"github.com/lfactor/lfactor/dataset/token"
)

// Tokenizer makes tokens of captions, as the folder beside a text encoder says. It is safe for concurrent use.
type Tokenizer struct {
	*token.Tokenizer
	// Pad is the token that captions are filled up with, -1 where the folder names none.
	Pad int32
	dir string
}

// OpenTokenizer opens a folder as diffusers keeps a tokenizer: tokenizer.json, CLIP's vocab.json and
// merges.txt, or T5's spiece.model, with tokenizer_config.json. Where that names no token to fill with, it
// is <pad> if there is such a token.
func OpenTokenizer(dir string) (*Tokenizer, error) {
	tok, c, err := token.LoadDir(dir)
	if err != nil {
		return nil, err
	}
	t := &Tokenizer{Tokenizer: tok, Pad: -1, dir: dir}
	for _, name := range []string{"<pad>", c.PAD} {
		if id, ok := tok.TokenID(name); ok && name != "" {
			t.Pad = id
		}
	}
	return t, nil
}

// IDs are the tokens of a caption, with the special ones around it, length of them at most: of a longer
// caption the last tokens are left out, and it still ends with the special ones. Errors are a length without
// room, and text on which the tokenizer does not come to an end.
func (t *Tokenizer) IDs(caption string, length int) ([]int32, error) {
	before, after := t.Around()
	if length <= len(before)+len(after) {
		return nil, fmt.Errorf("texts: %d tokens are no room for a caption and %d special tokens of %s",
			length, len(before)+len(after), t.dir)
	}
	ids, err := t.TryEncode(caption, true)
	if err != nil {
		return nil, fmt.Errorf("texts: %s: %w", t.dir, err)
	}
	if len(ids) > length {
		ids = append(ids[:length-len(after)], after...)
	}
	return ids, nil
}
