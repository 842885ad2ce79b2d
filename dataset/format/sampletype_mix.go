package format

import (
	"encoding/json"

	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/dataset/media"
)

// CrudeMeta is Energon's description of samples that a cooker reads.
func CrudeMeta(name string) map[string]any {
	return map[string]any{"__module__": "megatron.energon", "__class__": "CrudeWebdataset",
		"subflavors": map[string]any{"sample_type": name}}
}

var (
	_ = registerSampleType(SampleType{Name: "multi_mix_qa", Doc: "{texts, media, name} and the files that name lists",
		Meta: CrudeMeta("multi_mix_qa"), Read: readMix("texts")})
	_ = registerSampleType(SampleType{Name: "multi_vid_vqa", Doc: "as multi_mix_qa, with videos",
		Meta: CrudeMeta("multi_vid_vqa"), Read: readMix("texts")})
	_ = registerSampleType(SampleType{Name: "chat_mix",
		Doc:  "{messages, tools, media, name} and the files that name lists",
		Meta: CrudeMeta("chat_mix"), Read: readMix("messages")})
	_ = registerSampleType(SampleType{Name: "packed_chat_mix", Doc: "{messages: [{messages, tools}, …], media_files, " +
		"media_type}: several conversations in one sample", Meta: CrudeMeta("packed_chat_mix"), Read: readPackedChat})
	_ = registerSampleType(SampleType{Name: "packed_multi_mix_qa",
		Doc:  "{texts: {prompts, captions}, media_files, media_type}: several questions in one sample",
		Meta: CrudeMeta("packed_multi_mix_qa"), Read: readPackedMix})
	_ = registerSampleType(SampleType{Name: "packed_vqa",
		Doc:  "{prompts, captions, images} with img0.jpg, img1.jpg, …: several questions in one sample",
		Meta: CrudeMeta("packed_vqa"), Read: readPackedImages})
	_ = registerSampleType(SampleType{Name: "packed_captioning",
		Doc:  "{prompts, captions, images} with img0.jpg, img1.jpg, …: several captions in one sample",
		Meta: CrudeMeta("packed_captioning"), Read: readPackedImages})
	_ = registerSampleType(SampleType{Name: "vqa", Doc: "KEY.jpg and the list of messages in KEY.json",
		Meta: map[string]any{
			"sample_type": map[string]any{"__module__": "megatron.energon", "__class__": "VQASample"},
			"field_map":   map[string]any{"image": "jpg", "context": "json[0][content]", "answers": "json[1][content]"},
		}, Read: readSingle})
	_ = registerSampleType(SampleType{Name: "caption", Doc: "KEY.jpg and captions or messages in KEY.json",
		Meta: map[string]any{
			"sample_type": map[string]any{"__module__": "megatron.energon", "__class__": "CaptioningSample"},
			"field_map":   map[string]any{"image": "jpg", "caption": "json[captions][0][content]"},
		}, Read: readSingle})
)

// readMix reads one conversation under a key, with the files that "name" lists.
func readMix(key string) func(s *sampleJSON) ([]Conversation, error) {
	return func(s *sampleJSON) ([]Conversation, error) {
		var kind string
		var names []string
		if err := s.get("media", &kind); err != nil {
			return nil, err
		}
		if err := s.get("name", &names); err != nil {
			return nil, err
		}
		media, err := s.media(kind, names)
		if err != nil {
			return nil, err
		}
		c, err := s.conversation(s.members[key], media)
		if err == nil && s.members["tools"] != nil && !isNull(s.members["tools"]) {
			c.Tools = s.members["tools"]
		}
		return []Conversation{c}, err
	}
}

// groups returns the media of each of n parts of a packed sample, from media_files and media_type.
func (s *sampleJSON) groups(n int) ([][]dataset.Media, error) {
	var kind string
	var files []json.RawMessage
	if err := s.get("media_type", &kind); err != nil {
		return nil, err
	}
	if err := s.get("media_files", &files); err != nil {
		return nil, err
	}
	if len(files) > n {
		return nil, s.bad("it has media for %d conversations and %d conversations", len(files), n)
	}
	if kind == "text" {
		kind = ""
	}
	out := make([][]dataset.Media, n)
	for i, raw := range files {
		names, err := textOrList(raw)
		if err != nil {
			return nil, s.bad("its media_files are no lists of names")
		}
		if out[i], err = s.media(kind, names); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// textOrList reads a text as a list of one.
func textOrList(raw json.RawMessage) (out []string, err error) {
	if isNull(raw) {
		return nil, nil
	}
	if len(raw) > 0 && raw[0] == '"' {
		out = make([]string, 1)
		return out, json.Unmarshal(raw, &out[0])
	}
	return out, json.Unmarshal(raw, &out)
}

// readPackedChat reads several conversations that were packed into one sample, each with its own media and tools.
func readPackedChat(s *sampleJSON) ([]Conversation, error) {
	var list []json.RawMessage
	if err := s.get("messages", &list); err != nil {
		return nil, err
	}
	media, err := s.groups(len(list))
	if err != nil {
		return nil, err
	}
	var out []Conversation
	for i, raw := range list {
		var one struct {
			Messages json.RawMessage `json:"messages"`
			Tools    json.RawMessage `json:"tools"`
		}
		if len(raw) > 0 && raw[0] == '[' {
			one.Messages = raw
		} else if err := json.Unmarshal(raw, &one); err != nil {
			return nil, s.bad("its conversation %d is not a list of messages", i)
		}
		c, err := s.conversation(one.Messages, media[i])
		if err != nil {
			return nil, err
		}
		if one.Tools != nil && !isNull(one.Tools) {
			c.Tools = one.Tools
		}
		out = append(out, c)
	}
	return out, nil
}

// readPackedMix reads packed pairs of prompt and caption, each with any number of media.
func readPackedMix(s *sampleJSON) ([]Conversation, error) {
	inner := &sampleJSON{doc: s.doc, tags: s.tags}
	if err := s.get("texts", &inner.members); err != nil {
		return nil, err
	}
	prompts, captions, err := inner.pairs()
	if err != nil {
		return nil, err
	}
	media, err := s.groups(len(captions))
	if err != nil {
		return nil, err
	}
	return s.asked(prompts, captions, media)
}

// readPackedImages reads packed pairs of prompt and caption, the first of them with one image each.
func readPackedImages(s *sampleJSON) ([]Conversation, error) {
	prompts, captions, err := s.pairs()
	if err != nil {
		return nil, err
	}
	var images []json.RawMessage
	if err := s.get("images", &images); err != nil {
		return nil, err
	}
	if len(images) > len(captions) {
		return nil, s.bad("it has %d images and %d captions", len(images), len(captions))
	}
	media := make([][]dataset.Media, len(captions))
	for i := range images {
		if media[i], err = s.media("image", []string{packedImage(i)}); err != nil {
			return nil, err
		}
	}
	return s.asked(prompts, captions, media)
}

// pairs reads questions and answers, each a list of texts or lists of turns.
func (s *sampleJSON) pairs() (prompts, captions [][]string, err error) {
	for _, part := range []struct {
		key  string
		into *[][]string
	}{{"prompts", &prompts}, {"captions", &captions}} {
		var list []json.RawMessage
		if err := s.get(part.key, &list); err != nil {
			return nil, nil, err
		}
		for _, raw := range list {
			texts, err := textOrList(raw)
			if err != nil {
				return nil, nil, s.bad("its %q are no texts", part.key)
			}
			*part.into = append(*part.into, texts)
		}
	}
	if len(prompts) != len(captions) {
		return nil, nil, s.bad("it has %d prompts and %d captions", len(prompts), len(captions))
	}
	return prompts, captions, nil
}

// asked makes conversations of questions and their answers, turn by turn.
func (s *sampleJSON) asked(prompts, captions [][]string, media [][]dataset.Media) ([]Conversation, error) {
	var out []Conversation
	for i := range captions {
		if len(prompts[i]) > 1 && len(prompts[i]) != len(captions[i]) {
			return nil, s.bad("its part %d has %d questions and %d answers", i, len(prompts[i]), len(captions[i]))
		}
		var messages []dataset.Message
		for k, answer := range captions[i] {
			question := ""
			if k < len(prompts[i]) {
				question = prompts[i][k]
			}
			messages = append(messages, dataset.Message{Role: "user", Content: question},
				dataset.Message{Role: "assistant", Content: answer})
		}
		c, err := s.place(messages, media[i])
		if err != nil {
			return nil, err
		}
		out = append(out, c)
	}
	return out, nil
}

// readSingle reads a sample with one image, KEY.jpg or of another image's extension.
func readSingle(s *sampleJSON) ([]Conversation, error) {
	var names []string
	for _, p := range s.doc.Parts {
		if media.IsImage(p.Name) {
			names = append(names, p.Name)
		}
	}
	media, err := s.media("image", names)
	if err != nil {
		return nil, err
	}
	list := s.raw
	if s.members != nil {
		list = s.members["captions"]
	}
	for _, key := range []string{"messages", "conversations", "texts"} {
		if raw, ok := s.members[key]; ok {
			list = raw
		}
	}
	var text string
	if json.Unmarshal(list, &text) == nil {
		c, err := s.place([]dataset.Message{{Role: "user"}, {Role: "assistant", Content: text}}, media)
		return []Conversation{c}, err
	}
	c, err := s.conversation(list, media)
	return []Conversation{c}, err
}
