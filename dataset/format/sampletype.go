package format

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/lfactor/lfactor/dataset"
)

// Conversation is what a sample with images or videos says.
type Conversation struct {
	// Messages have text, or in Raw a content of parts, [{"type": "image"}, {"type": "text", "text": …}], as
	// chat templates of vision-language models expect it.
	Messages []dataset.Message
	Tools    json.RawMessage // as Document.Tools
	Media    []dataset.Media // in the order of the parts that stand for them; without Spans
}

// SampleType is a way in which a sample's files hold conversations. The names, members and keys are those of
// LoongForge's converter and offline packing (tools/data_preprocess/vlm and its task encoder).
type SampleType struct {
	Name string
	Doc  string         // one sentence for people
	Meta map[string]any // Energon's dataset.yaml for it
	Read func(s *sampleJSON) ([]Conversation, error)
}

var sampleTypes []SampleType

// registerSampleType enters a kind of sample; two of one name are a defect of the program.
func registerSampleType(t SampleType) bool {
	if slices.ContainsFunc(sampleTypes, func(o SampleType) bool { return o.Name == t.Name }) {
		panic(fmt.Sprintf("format: two sample types are named %q", t.Name))
	}
	sampleTypes = append(sampleTypes, t)
	return true
}

// SampleTypes returns what is registered, by name.
func SampleTypes() []SampleType {
	out := slices.Clone(sampleTypes)
	slices.SortFunc(out, func(a, b SampleType) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// SampleTypeOf returns the type of a name. The other names people use for them count too.
func SampleTypeOf(name string) (SampleType, error) {
	other := map[string]string{"captioning": "caption", "multi_vid_qa": "multi_vid_vqa"}
	var names []string
	for _, t := range SampleTypes() {
		if t.Name == name || t.Name == other[name] {
			return t, nil
		}
		names = append(names, t.Name)
	}
	return SampleType{}, fmt.Errorf("no sample type is named %q; there are %s", name, strings.Join(names, ", "))
}

// GuessSampleType tells a sample's type from its JSON, for data that does not say it.
func GuessSampleType(d *dataset.Document) string {
	b, _ := d.Part("json")
	keys := keysOf(b)
	switch {
	case keys["media_files"] && keys["messages"]:
		return "packed_chat_mix"
	case keys["media_files"]:
		return "packed_multi_mix_qa"
	case keys["prompts"] && keys["captions"]:
		return "packed_vqa"
	case keys["messages"]:
		return "chat_mix"
	case keys["texts"]:
		return "multi_mix_qa"
	case keys["captions"]:
		return "caption"
	}
	return "vqa"
}

// Converse returns the conversations of a sample of a type; "" tells it from the sample. What is wrong with
// a sample is a *dataset.BadSample. Tags are other names of messages' keys and roles than the usual ones.
func Converse(d *dataset.Document, sampleType string, tags dataset.Tags) ([]Conversation, error) {
	if sampleType == "" && d.Layout != nil {
		if sampleType = d.Layout.Type; sampleType == "" {
			return readMapped(&sampleJSON{doc: d, tags: tags})
		}
	}
	if sampleType == "" {
		sampleType = GuessSampleType(d)
	}
	t, err := SampleTypeOf(sampleType)
	if err != nil {
		return nil, err
	}
	s := &sampleJSON{doc: d, tags: tags}
	b, ok := d.Part("json")
	if !ok {
		return nil, s.bad("it has no part \"json\"")
	}
	if err := checkUTF8(b, d.Place); err != nil {
		return nil, err
	}
	if err := checkSurrogates(b, d.Place); err != nil {
		return nil, err
	}
	s.raw = b
	if !json.Valid(b) {
		return nil, notJSON(json.Unmarshal(b, new(any)), d.Place)
	}
	if trimmed := bytes.TrimSpace(b); len(trimmed) > 0 && trimmed[0] == '{' {
		if s.members, err = object(b, d.Place); err != nil {
			return nil, err
		}
	}
	return t.Read(s)
}

// sampleJSON is the JSON part of a sample.
type sampleJSON struct {
	doc     *dataset.Document
	raw     json.RawMessage
	members map[string]json.RawMessage // nil where it is not an object
	tags    dataset.Tags
}

// bad is a bad sample whose reason names its key.
func (s *sampleJSON) bad(format string, args ...any) error {
	return &dataset.BadSample{Place: s.doc.Place, Reason: fmt.Sprintf("sample %q: ", s.doc.Key) +
		fmt.Sprintf(format, args...)}
}

// get decodes a member; a missing or null one leaves into as it is.
func (s *sampleJSON) get(key string, into any) error {
	raw, ok := s.members[key]
	if !ok || isNull(raw) {
		return nil
	}
	if err := json.Unmarshal(raw, into); err != nil {
		return s.bad("its %q is not as expected: %s", key, strings.TrimPrefix(err.Error(), "json: "))
	}
	return nil
}

// media returns the files of some names as media of a kind; "" tells the kind from the name.
func (s *sampleJSON) media(kind string, names []string) ([]dataset.Media, error) {
	var out []dataset.Media
	for _, n := range names {
		b, ok := s.doc.Part(n)
		if !ok {
			b, ok = s.doc.Part(strings.ToLower(n))
		}
		if !ok {
			return nil, s.bad("it speaks of the file %q, which is not in it", Clip(n))
		}
		k := dataset.MediaKind(kind)
		if kind == "" || kind == "mix" {
			k = KindOfName(n)
		}
		if k != dataset.Image && k != dataset.Video && k != dataset.Audio {
			return nil, s.bad("its media are %q; they must be image, video or audio", Clip(string(k)))
		}
		out = append(out, dataset.Media{Kind: k, Key: s.doc.Key + "." + n, Bytes: b})
	}
	return out, nil
}

var (
	videoSuffixes = []string{".mp4", ".mkv", ".mov", ".avi", ".webm", ".m4v", ".mpg", ".mpeg", ".flv", ".wmv"}
	audioSuffixes = []string{".wav", ".mp3", ".flac", ".ogg", ".m4a", ".aac"}
)

// KindOfName tells by a file's name what it shows: images where nothing else is known.
func KindOfName(name string) dataset.MediaKind {
	switch {
	case HasSuffix("."+name, videoSuffixes...):
		return dataset.Video
	case HasSuffix("."+name, audioSuffixes...):
		return dataset.Audio
	}
	return dataset.Image
}
