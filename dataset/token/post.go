package token

import (
	"encoding/json"
	"fmt"
)

// postProcessor puts special tokens around a text: ids before and after it.
type postProcessor struct{ before, after []int32 }

// extra is the number of tokens that apply adds.
func (p postProcessor) extra(addSpecial bool) int {
	if !addSpecial {
		return 0
	}
	return len(p.before) + len(p.after)
}

// apply appends ids to out, between the special tokens if they are wanted.
func (p postProcessor) apply(out, ids []int32, addSpecial bool) []int32 {
	if !addSpecial {
		return append(out, ids...)
	}
	out = append(out, p.before...)
	out = append(out, ids...)
	return append(out, p.after...)
}

type postFile struct {
	Single        []templatePiece           `json:"single"`
	SpecialTokens map[string]templateTokens `json:"special_tokens"`
	Cls           *nameID                   `json:"cls"`
	Sep           *nameID                   `json:"sep"`
}

type templatePiece struct {
	SpecialToken *struct {
		ID string `json:"id"`
	} `json:"SpecialToken"`
	Sequence *struct {
		ID string `json:"id"`
	} `json:"Sequence"`
}

type templateTokens struct {
	IDs []int32 `json:"ids"`
}

// nameID is ["<s>", 0].
type nameID struct{ id int32 }

func (n *nameID) UnmarshalJSON(b []byte) error {
	var name string
	return json.Unmarshal(b, &[]any{&name, &n.id})
}

// parsePost reads the post-processors; in a sequence of them the later ones act outside the earlier.
func parsePost(raw json.RawMessage) (postProcessor, error) {
	var all postProcessor
	leaves, err := flatten(raw, "post_processor", "processors", 0)
	if err != nil {
		return all, err
	}
	for _, l := range leaves {
		p, err := parseOnePost(l)
		if err != nil {
			return all, fmt.Errorf("tokenizer.json: post_processor: %w", err)
		}
		all.before = append(p.before, all.before...)
		all.after = append(all.after, p.after...)
	}
	return all, nil
}

// parseOnePost reads how special tokens are put around a text.
func parseOnePost(raw json.RawMessage) (postProcessor, error) {
	var f postFile
	if err := json.Unmarshal(raw, &f); err != nil {
		return postProcessor{}, err
	}
	typ, err := typeOf(raw)
	if err != nil {
		return postProcessor{}, err
	}
	switch typ {
	case "ByteLevel": // moves offsets only
		return postProcessor{}, nil
	case "BertProcessing", "RobertaProcessing":
		if f.Cls == nil || f.Sep == nil {
			return postProcessor{}, fmt.Errorf("%s without cls and sep", typ)
		}
		return postProcessor{[]int32{f.Cls.id}, []int32{f.Sep.id}}, nil
	case "TemplateProcessing":
		return f.template()
	}
	return postProcessor{}, fmt.Errorf("type %q is not supported", typ)
}

// template reads the template of a single text: special tokens around one sequence.
func (f *postFile) template() (p postProcessor, err error) {
	seen := false
	for i, piece := range f.Single {
		switch {
		case piece.Sequence != nil && !seen:
			seen = true
		case piece.SpecialToken != nil:
			t, ok := f.SpecialTokens[piece.SpecialToken.ID]
			if !ok {
				return p, fmt.Errorf("TemplateProcessing: special token %q has no ids", piece.SpecialToken.ID)
			}
			if seen {
				p.after = append(p.after, t.IDs...)
			} else {
				p.before = append(p.before, t.IDs...)
			}
		default:
			return p, fmt.Errorf("TemplateProcessing: single[%d] is neither a special token nor the first sequence", i)
		}
	}
	if !seen {
		return p, fmt.Errorf("TemplateProcessing: single has no sequence")
	}
	return p, nil
}
