package format

import (
	"encoding/json"
	"fmt"
	"path"
	"strings"

	"github.com/lfactor/lfactor/dataset"
)

// CaptionEncoder makes samples of images and clips with their captions: the dataset.SampleEncoder of models
// of diffusion. A sample has as many tokens as its latents, all of id 0, and each is its own label; the image
// and its caption are its media.
type CaptionEncoder struct {
	Key string // of the caption in a sample's JSON
	// Tokens is the number of tokens that an image or a clip becomes; it looks at the file's header at most.
	Tokens func(m *dataset.Media) (int, error)
	Print  string // changes with whatever changes Tokens
	Mute   bool   // captions are not looked for: the model reads none
}

// Fingerprint implements dataset.SampleEncoder.
func (c *CaptionEncoder) Fingerprint() string { return HashOf("captions 1", c.Key, c.Print) }

// pictures are the endings of files that a sample's image or clip may have.
var pictures = map[string]dataset.MediaKind{"jpg": dataset.Image, "jpeg": dataset.Image, "png": dataset.Image,
	"webp": dataset.Image, "gif": dataset.Image, "bmp": dataset.Image, "tiff": dataset.Image,
	"mp4": dataset.Video, "webm": dataset.Video, "mkv": dataset.Video, "mov": dataset.Video, "avi": dataset.Video}

// EncodeSample implements dataset.SampleEncoder.
func (c *CaptionEncoder) EncodeSample(d *dataset.Document) ([]dataset.Sample, error) {
	var picture *dataset.Media
	for _, p := range d.Parts {
		kind, ok := pictures[strings.TrimPrefix(path.Ext("."+p.Name), ".")]
		if !ok {
			continue
		}
		if picture != nil {
			return nil, fmt.Errorf("sample %q has two images or clips, %s and %s: one is trained", d.Key,
				picture.Key, d.Key+"."+p.Name)
		}
		picture = &dataset.Media{Kind: kind, Key: d.Key + "." + p.Name, Bytes: p.Bytes}
	}
	if picture == nil {
		return nil, fmt.Errorf("sample %q has no image and no clip", d.Key)
	}
	caption := ""
	if !c.Mute {
		var err error
		if caption, err = c.caption(d); err != nil {
			return nil, fmt.Errorf("sample %q: %w", d.Key, err)
		}
	}
	n, err := c.Tokens(picture)
	if err != nil {
		return nil, fmt.Errorf("sample %q: %s: %w", d.Key, picture.Key, err)
	}
	all := []dataset.Span{{From: 0, To: int32(n)}}
	picture.Spans = all
	return []dataset.Sample{{Tokens: make([]int32, n), Media: []dataset.Media{*picture,
		{Kind: dataset.Caption, Key: d.Key + ".caption", Bytes: []byte(caption), Spans: all}}}}, nil
}

// caption is a sample's text: that of its txt, or of a key of its JSON.
func (c *CaptionEncoder) caption(d *dataset.Document) (string, error) {
	if text, ok := d.Part("txt"); ok {
		return strings.TrimSpace(string(text)), nil
	}
	raw, ok := d.Part("json")
	if !ok {
		return "", fmt.Errorf("there is no caption: neither a txt nor a json")
	}
	var keys map[string]json.RawMessage
	if err := json.Unmarshal(raw, &keys); err != nil {
		return "", fmt.Errorf("json: %w", err)
	}
	var text string
	if keys[c.Key] == nil || json.Unmarshal(keys[c.Key], &text) != nil {
		return "", fmt.Errorf("json has no caption: %q is no text in it; diffusion.caption_key names its key",
			c.Key)
	}
	return strings.TrimSpace(text), nil
}
