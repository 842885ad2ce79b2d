package token

import (
	"cmp"
	_ "embed"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/template"
)

// named is a chat format that goes by a name: what stands before and after each turn. EOS and BOS stand for
// the tokenizer's tokens of that name. Source: the registry of LoongForge's and LLaMA-Factory's templates,
// and the models' cards.
type named struct {
	Prefix    string // of a conversation
	System    string // one %s, the system message; "" writes it as it is
	Standard  string // system message of conversations without one
	User      string // one %s, the message; up to where the answer begins
	Separator string // between rounds
	Stop      string // behind each answer
	Last      string // behind the last answer only
	Inside    bool   // the system message is written at the start of the first user's
}

const (
	bosMark = "\x00bos"
	eosMark = "\x00eos"
)

//go:embed named.jinja
var namedJinja string

var namedText = template.Must(template.New("named").Delims("⟦", "⟧").Funcs(template.FuncMap{"filled": filled,
	"quoted": quoted}).Parse(namedJinja))

//go:embed namedchats.json
var namedFile []byte

var namedChats = func() (all map[string]named) {
	if err := json.Unmarshal(namedFile, &all); err != nil {
		panic(err) // the file is the program's own
	}
	return all
}()

// TemplateNames lists the chat formats that go by a name, besides those that end in -hf: these are the tokenizer's own.
func TemplateNames() []string { return slices.Sorted(maps.Keys(namedChats)) }

// NamedTemplate writes a chat format as a Jinja template; it reports false for an unknown name. Images
// and videos in messages become the tokens that t has for them.
func NamedTemplate(name string, t interface{ TokenID(string) (int32, bool) }) (string, bool) {
	c, ok := namedChats[name]
	if !ok {
		return "", false
	}
	image, video := "", ""
	if m, ok := t.(Marker); ok {
		image, video = m.MediaMarks()
	}
	before, after, _ := strings.Cut(c.User, "%s")
	c.System = cmp.Or(c.System, "%s")
	var b strings.Builder
	if err := namedText.Execute(&b, map[string]any{"C": c, "Before": before, "After": after,
		"Image": quoted(mediaMark(t, image, "<|image_pad|>", "<IMG_CONTEXT>", "<image>")),
		"Video": quoted(mediaMark(t, video, "<|video_pad|>", "<video>"))}); err != nil {
		panic(err) // the text is the program's own
	}
	return strings.TrimSuffix(b.String(), "\n"), true
}

// Marker is a tokenizer whose model says which tokens stand for images and videos; "" leaves it to the names
// that tokenizers have for them.
type Marker interface {
	MediaMarks() (image, video string)
}

// Marked is a tokenizer with the tokens that its model's configuration names.
type Marked struct {
	*Tokenizer
	Image, Video string
}

// MediaMarks implements Marker.
func (m Marked) MediaMarks() (image, video string) { return m.Image, m.Video }

// mediaMark is the model's own mark or else the first of the names that the tokenizer has, between the
// tokens that open and end vision where it has those.
func mediaMark(t interface{ TokenID(string) (int32, bool) }, own string, names ...string) string {
	if own != "" {
		names = []string{own}
	}
	for _, name := range names {
		if _, ok := t.TokenID(name); !ok {
			continue
		}
		if _, ok := t.TokenID("<|vision_start|>"); ok && strings.HasSuffix(name, "_pad|>") {
			return "<|vision_start|>" + name + "<|vision_end|>"
		}
		return name
	}
	return names[len(names)-1] // no token: an error of the data, which names the mark
}

// filled writes a text with its marks, and value in place of %s, as Jinja output.
func filled(text, value string) string {
	var b strings.Builder
	for text != "" {
		at := len(text)
		for _, mark := range []string{"%s", bosMark, eosMark} {
			if i := strings.Index(text, mark); i >= 0 {
				at = min(at, i)
			}
		}
		if at > 0 {
			fmt.Fprintf(&b, "{{ %s }}", quoted(text[:at]))
			text = text[at:]
			continue
		}
		switch {
		case strings.HasPrefix(text, "%s"):
			fmt.Fprintf(&b, "{{ %s }}", value)
			text = text[2:]
		case strings.HasPrefix(text, bosMark):
			b.WriteString("{{ bos_token }}")
			text = text[len(bosMark):]
		default:
			b.WriteString("{{ eos_token }}")
			text = text[len(eosMark):]
		}
	}
	return b.String()
}

// quoted is a Jinja string.
func quoted(s string) string {
	return "'" + strings.NewReplacer(`\`, `\\`, `'`, `\'`, "\n", `\n`).Replace(s) + "'"
}
