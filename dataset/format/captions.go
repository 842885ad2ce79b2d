package format

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/dataset/media"
)

// CaptionEncoder makes samples of images and clips with their captions: the dataset.SampleEncoder of models
// of diffusion. A sample has as many tokens as its latents, all of id 0, and each is its own label; the
// image and its caption are its media.
type CaptionEncoder struct {
	Key string // of the caption in a sample's JSON
	// Tokens is the number of tokens that an image or a clip becomes; it looks at the file's header at most.
	Tokens func(m *dataset.Media) (int, error)
	// Alike is what images and clips of one row have in common (dataset.Sample.Alike); nil where any may meet
	Alike func(m *dataset.Media) (string, error)
	Print string // changes with whatever changes Tokens
	Mute  bool   // captions are not looked for: the model reads none
	// Condition is the number of tokens of an image that is given to be changed, of which a sample has one
	// to Most beside the image that it becomes; nil where samples have none. The caption then has these
	// images before it (SplitImages).
	Condition func(m *dataset.Media) (int, error)
	Most      int
}

// Fingerprint implements dataset.SampleEncoder.
func (c *CaptionEncoder) Fingerprint() string { return HashOf("captions 1", c.Key, c.Print) }

// pictures are the endings of files that a sample's image or clip may have.
var pictures = map[string]dataset.MediaKind{"jpg": dataset.Image, "jpeg": dataset.Image, "png": dataset.Image,
	"webp": dataset.Image, "gif": dataset.Image, "bmp": dataset.Image, "tiff": dataset.Image, "avif": dataset.Image,
	"heic": dataset.Image, "jp2": dataset.Image, "j2k": dataset.Image, "mp4": dataset.Video, "webm": dataset.Video,
	"mkv": dataset.Video, "mov": dataset.Video, "avi": dataset.Video}

// EncodeSample implements dataset.SampleEncoder.
func (c *CaptionEncoder) EncodeSample(d *dataset.Document) ([]dataset.Sample, error) {
	var picture *dataset.Media
	var given []dataset.Media
	for _, p := range d.Parts {
		kind, ok := pictures[strings.TrimPrefix(path.Ext("."+p.Name), ".")]
		if !ok {
			continue
		}
		if c.Condition != nil && strings.HasPrefix(p.Name, conditionName) {
			given = append(given, dataset.Media{Kind: kind, Key: d.Key + "." + p.Name, Bytes: p.Bytes})
			continue
		}
		if kind == dataset.Image && media.Moves(p.Bytes) {
			kind = dataset.Video
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
	if c.Condition != nil {
		if n, err = c.conditions(given, n); err != nil {
			return nil, fmt.Errorf("sample %q: %w", d.Key, err)
		}
		var images [][]byte
		for i := range given {
			images = append(images, given[i].Bytes)
		}
		caption = string(JoinImages(images, caption))
	}
	alike := ""
	if c.Alike != nil {
		if alike, err = c.Alike(picture); err != nil {
			return nil, fmt.Errorf("sample %q: %s: %w", d.Key, picture.Key, err)
		}
	}
	return []dataset.Sample{{Tokens: make([]int32, n), Alike: alike,
		Media: append(append([]dataset.Media{*picture}, given...),
			dataset.Media{Kind: dataset.Caption, Key: d.Key + ".caption", Bytes: []byte(caption), Spans: all})}}, nil
}

// conditionName begins the names of a sample's files that are given to be changed, as 000.cond0.png.
const conditionName = "cond"

// IsCondition reports whether a medium of a key is one that is given to be changed.
func IsCondition(key string) bool {
	names := strings.Split(key, ".")
	return len(names) > 2 && strings.HasPrefix(names[len(names)-2], conditionName)
}

// conditions sorts images that are given, lays their tokens behind the n of the sample's own, and returns
// how many there are in all.
func (c *CaptionEncoder) conditions(given []dataset.Media, n int) (int, error) {
	if len(given) == 0 || len(given) > c.Most {
		return 0, fmt.Errorf("it has %d images to be changed, want 1 to %d, as KEY.%s0.png", len(given), c.Most,
			conditionName)
	}
	slices.SortFunc(given, func(a, b dataset.Media) int { return strings.Compare(a.Key, b.Key) })
	for i := range given {
		m := &given[i]
		if m.Kind != dataset.Image {
			return 0, fmt.Errorf("%s is a clip, and images are changed", m.Key)
		}
		tokens, err := c.Condition(m)
		if err != nil {
			return 0, fmt.Errorf("%s: %w", m.Key, err)
		}
		m.Spans = []dataset.Span{{From: int32(n), To: int32(n + tokens)}}
		n += tokens
	}
	return n, nil
}

// JoinImages puts images before a caption: their number, and the length and the bytes of each.
func JoinImages(images [][]byte, caption string) []byte {
	out := binary.AppendUvarint(nil, uint64(len(images)))
	for _, b := range images {
		out = append(binary.AppendUvarint(out, uint64(len(b))), b...)
	}
	return append(out, caption...)
}

// SplitImages is the inverse of JoinImages.
func SplitImages(joined []byte) (images [][]byte, caption string, err error) {
	next := func() (n uint64) {
		n, size := binary.Uvarint(joined)
		if size <= 0 || n > uint64(len(joined)) {
			err = errors.New("a caption has no images before it")
			return 0
		}
		joined = joined[size:]
		return n
	}
	for range next() {
		n := next()
		if err != nil || n > uint64(len(joined)) {
			return nil, "", errors.New("a caption has broken images before it")
		}
		images, joined = append(images, joined[:n]), joined[n:]
	}
	return images, string(joined), err
}

// The key of captions unless a run names another one, and what diffusers' examples call it, which is read where there
// is no other.
const (
	captionKey = "caption"
	textKey    = "text"
)

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
	if keys[c.Key] == nil && c.Key == captionKey {
		c = &CaptionEncoder{Key: textKey}
	}
	var text string
	if keys[c.Key] == nil || json.Unmarshal(keys[c.Key], &text) != nil {
		return "", fmt.Errorf("json has no caption: %q is no text in it%s; diffusion.caption_key names its key",
			c.Key, itsKeys(keys))
	}
	return strings.TrimSpace(text), nil
}
