package policies

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"image"
	"image/png"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/dataset/format"
	"github.com/lfactor/lfactor/dataset/format/recordings"
	"github.com/lfactor/lfactor/dataset/media"
	"github.com/lfactor/lfactor/dataset/setup"
	"github.com/lfactor/lfactor/dataset/token"
	"github.com/lfactor/lfactor/stages/checkpoint"
	"github.com/lfactor/lfactor/stages/family"
	"github.com/lfactor/lfactor/stages/trained"
)

// TokenPolicy is a policy that writes: a vision-language model, whichever it is, which is asked what a robot
// is to do and answers with tokens that stand for actions (policy.tokens). Frames of recordings are
// conversations to it, that it learns as others.
// In the words of the field: token policy.
type TokenPolicy struct {
	*Robots
	images  *trained.Images
	encoder *format.VisionEncoder
	blank   []byte // a picture of the size of views
	fast    *token.FAST
	ends    int32   // tokens of actions lie before it, the first one directly
	before  []int32 // of an answer, around those of actions
	after   []int32
	eos     int32
	longest int // tokens of a sample
}

// NewTokenPolicy reads what a run says of a policy that writes, whose model and tokenizer are given. Saved is its
// checkpoint, whose scales it acts by; nil where it begins to learn.
func NewTokenPolicy(cfg *configs.Config, m *family.Model, tok *token.Tokenizer, conf *token.Config,
	saved *checkpoint.Reader, notes io.Writer) (*TokenPolicy, error) {
	p := &cfg.Run.Policy
	d := &family.Denoiser{Patch: [3]int{1, 1, 1}, Channels: 1 << 16, Policy: family.Policy{Chunk: p.Horizon, Once: true,
		Sight: &family.Sight{Views: p.ViewsMax(), Patches: p.ViewSize * p.ViewSize, Pixels: 3}}}
	x, err := tokenPolicyRobots(cfg, d, saved)
	if err != nil {
		return nil, err
	}
	s := &TokenPolicy{Robots: x, ends: int32(p.TokenEnd), longest: cfg.Run.Data.SeqLen}
	if s.ends == 0 {
		s.ends = int32(cfg.Model.Vocab)
	}
	if p.Tokens == "fast" {
		if s.fast, err = token.OpenFAST(p.Fast); err != nil {
			return nil, cfg.Fault("policy.fast", err.Error(), "make one with lfactor data fast")
		}
		if k, err := keptIn(saved); err != nil {
			return nil, err
		} else if k != nil && k.Fast != s.fast.Fingerprint() {
			return nil, cfg.Fault("policy.fast", p.Fast+" has another tokenizer than the policy was trained with",
				"bring that one back, or act from an export, which has it beside it")
		}
		if n := s.fast.VocabSize(); int32(n) > s.ends {
			return nil, cfg.Fault("policy.fast", fmt.Sprintf("%d tokens, and there are %d before the end", n,
				s.ends), "")
		}
	}
	if err := s.asks(cfg, m, tok, conf, notes); err != nil {
		return nil, err
	}
	if s.before, s.after, err = around(cfg, tok); err != nil {
		return nil, err
	}
	return s, s.apart(cfg, tok, notes)
}

// around are the tokens of an answer before and behind those of actions.
func around(cfg *configs.Config, tok *token.Tokenizer) (before, after []int32, err error) {
	from, to, _ := strings.Cut(cfg.Run.Policy.Answer, "{actions}")
	if before, err = tok.TryEncode(from, false); err == nil {
		after, err = tok.TryEncode(to, false)
	}
	if err != nil {
		err = cfg.Fault("policy.answer", err.Error(), "")
	}
	return before, after, err
}

// asks prepares what the model is asked by: views and words.
func (s *TokenPolicy) asks(cfg *configs.Config, m *family.Model, tok *token.Tokenizer, conf *token.Config,
	notes io.Writer) (err error) {
	if s.images, err = trained.NewImages(cfg, m.Vision); err != nil {
		return err
	}
	side := image.Rect(0, 0, cfg.Run.Policy.ViewSize, cfg.Run.Policy.ViewSize)
	var b bytes.Buffer
	if err := png.Encode(&b, image.NewGray(side)); err != nil {
		return err
	}
	s.blank = b.Bytes()
	marks := trained.Marks(tok, cfg.Model.Vision, notes)
	t, err := setup.Template(cfg, marks, conf)
	if err != nil {
		return err
	}
	x, err := format.NewProcessorExpander(s.images.Processor, marks)
	if err != nil {
		return cfg.Fault("data.tokenizer", err.Error(), "")
	}
	s.encoder = &format.VisionEncoder{Chat: token.NewChat(tok, t, token.ChatOptions{}), Expander: x}
	id, ok := tok.TokenID(conf.EOS)
	switch {
	case ok && conf.EOS != "":
		s.eos = id
	case len(cfg.Model.EOS) > 0:
		s.eos = int32(cfg.Model.EOS[0])
	default:
		return cfg.Fault("data.tokenizer", "neither it nor the model says which token ends an answer",
			"give model.overrides.eos_token_id")
	}
	return nil
}

// apart holds tokens that stand for actions to those that stand for something else.
func (s *TokenPolicy) apart(cfg *configs.Config, tok *token.Tokenizer, notes io.Writer) error {
	marks := trained.Marks(tok, cfg.Model.Vision, notes)
	image, imageOK := tok.TokenID(marks.Image)
	video, videoOK := tok.TokenID(marks.Video)
	vision := cfg.Model.Vision
	why, try := crowded(s.ends, int32(s.tokens()), func(id int32) string {
		switch {
		case id == s.eos:
			return "ends answers"
		case int(id) == vision.ImageToken || imageOK && id == image:
			return "stands for an image"
		case int(id) == vision.VideoToken || videoOK && id == video:
			return "stands for a video"
		case tok.IsSpecial(id):
			return "is a special one of the tokenizer"
		}
		return ""
	})
	if why != "" {
		return cfg.Fault("policy.token_end", why, try)
	}
	return nil
}

// crowded says which of the n tokens before ends, which stand for actions, the model or its tokenizer has
// for something else, and what to do; "" for none. Taken says what for, "" for none.
func crowded(ends, n int32, taken func(id int32) string) (why, try string) {
	try = "take another tokenizer: it has no place for them"
	for end := ends; end >= n; {
		id, what := end-1, ""
		for ; id >= end-n && what == ""; id-- {
			what = taken(id)
		}
		if what == "" && end == ends {
			return "", ""
		}
		if what == "" {
			return why, fmt.Sprintf("set it to %d, or lower", end)
		}
		id++
		if why == "" {
			why = fmt.Sprintf("the token %d, which %s, is one of those that stand for actions", id, what)
		}
		end = id
	}
	return why, try
}

// bins is how many tokens the steps of policy.tokens: bins have.
const bins = 256

// tokens is how many tokens stand for actions.
func (s *TokenPolicy) tokens() int {
	if s.fast != nil {
		return s.fast.VocabSize()
	}
	return bins
}

// Samples is the encoder of frames.
func (s *TokenPolicy) Samples() dataset.SampleEncoder { return s }

// Fingerprint implements dataset.SampleEncoder.
func (s *TokenPolicy) Fingerprint() string { return s.print(s.encoder.Fingerprint()) }

// print is the fingerprint with that of conversations.
func (s *TokenPolicy) print(talk string) string {
	p := s.Policy
	fast := ""
	if s.fast != nil {
		fast = s.fast.Fingerprint() // wherever it lies
	}
	parts := []any{"scribe 3", talk, p.Answer, s.ends, p.Tokens, p.Horizon, fast, p.Question, p.ViewSize,
		p.Padding, p.Cameras}
	for _, set := range s.sets {
		parts = append(parts, fmt.Sprint(set.name, set.scale))
	}
	return format.HashOf(parts...)
}

// scribeView is what stands for a view until it is decoded.
type scribeView struct {
	Camera int                    `json:"camera"`
	Image  []byte                 `json:"image,omitempty"`
	Video  *recordings.VideoFrame `json:"video,omitempty"`
}

// EncodeSample implements dataset.SampleEncoder: a question with the views that there are, and the answer.
func (s *TokenPolicy) EncodeSample(d *dataset.Document) ([]dataset.Sample, error) {
	b, ok := d.Part("json")
	if !ok {
		return nil, fmt.Errorf("sample %q has no frame", d.Key)
	}
	var f recordings.RobotFrame
	if err := json.Unmarshal(b, &f); err != nil {
		return nil, err
	}
	scale, _ := s.of(f.Set)
	actions, err := s.aims(&f, scale)
	if err != nil {
		return nil, err
	}
	ids, err := s.write(actions)
	if err != nil {
		return nil, err
	}
	out, err := s.asked(d.Key, &f, scale)
	if err != nil {
		return nil, err
	}
	learn := len(ids)
	if !s.Policy.Padding {
		learn = (len(actions) - f.Pad) * len(ids) / len(actions)
	}
	out.Tokens = append(slices.Concat(out.Tokens, s.before, ids, s.after), s.eos)
	for i := range len(s.before) + len(ids) {
		out.Loss = append(out.Loss, i < len(s.before)+learn)
	}
	for range len(s.after) + 1 {
		out.Loss = append(out.Loss, true)
	}
	if len(out.Tokens) > s.longest {
		return nil, fmt.Errorf("%d tokens, and data.seq_len is %d", len(out.Tokens), s.longest)
	}
	return []dataset.Sample{out}, nil
}

// asked is a sample of what the model is asked about a frame, without an answer.
func (s *TokenPolicy) asked(key string, f *recordings.RobotFrame, scale RobotScale) (dataset.Sample, error) {
	var views []scribeView
	for i, c := range s.Policy.Cameras {
		if p, ok := f.Images[c]; ok {
			views = append(views, scribeView{Camera: i, Image: p})
		} else if v, ok := f.Videos[c]; ok {
			views = append(views, scribeView{Camera: i, Video: &v})
		}
	}
	out, err := s.question(scale, f.Task, f.State, len(views))
	for i := 0; i < len(views) && err == nil; i++ {
		out.Media[i].Key = key + "." + s.Policy.Cameras[views[i].Camera]
		out.Media[i].Bytes, err = json.Marshal(views[i])
	}
	return out, err
}

// write are the tokens of a chunk that is scaled.
func (s *TokenPolicy) write(actions [][]float64) (ids []int32, err error) {
	if s.fast == nil {
		for _, a := range actions {
			ids = append(ids, token.Bins{Vocab: int(s.ends)}.Encode(a)...)
		}
		return ids, nil
	}
	if ids, err = s.fast.Encode(actions); err != nil {
		return nil, fmt.Errorf("%s: %w", s.Policy.Action, err)
	}
	for i, id := range ids {
		ids[i] = s.ends - 1 - id
	}
	return ids, nil
}

// question is a sample of what the model is asked, with places for so many views, and no answer.
func (s *TokenPolicy) question(scale RobotScale, task string, state []float64, views int) (dataset.Sample, error) {
	var none dataset.Sample
	told, err := s.motion.read(state)
	if err == nil {
		told, err = scale.State.Of(told)
	}
	if err != nil {
		return none, fmt.Errorf("%s: %w", s.Policy.State, err)
	}
	words := make([]string, len(told))
	for i, v := range told {
		words[i] = fmt.Sprint(bin(v))
	}
	text := strings.NewReplacer("{task}", task, "{state}", strings.Join(words, " ")).Replace(s.Policy.Question)
	if s.D.Prompt != nil {
		text = s.D.Prompt(task)
	}
	var content []map[string]string
	c := format.Conversation{Media: make([]dataset.Media, views)}
	for i := range views {
		content = append(content, map[string]string{"type": "image"})
		c.Media[i] = dataset.Media{Kind: dataset.Image, Key: fmt.Sprintf("view %d", i+1), Bytes: s.blank}
	}
	raw, err := json.Marshal(map[string]any{"role": "user", "content": append(content,
		map[string]string{"type": "text", "text": text})})
	if err != nil {
		return none, err
	}
	c.Messages = []dataset.Message{{Role: "user", Raw: raw}, {Role: "assistant", Content: "0"}}
	if s.D.PromptBare {
		c.Messages = c.Messages[:1] // the model is not asked to answer
	}
	out, err := s.encoder.Converse(c)
	if err != nil {
		return none, err
	}
	n := slices.Index(out.Loss, true)
	if s.D.PromptBare {
		n = len(out.Tokens)
		out.Loss = make([]bool, n)
	}
	if n < 0 {
		return none, errors.New("the chat template writes no answer")
	}
	out.Tokens, out.Loss = out.Tokens[:n:n], out.Loss[:n:n]
	return out, nil
}

// scribeSeen is a view that is changed when it is learnt.
type scribeSeen struct {
	camera, of int // of how many views of its sample
	planes     []float32
}

// Prepare is the dataset.Prepare of the model: *media.Features, or a *scribeSeen where samples are changed.
func (s *TokenPolicy) Prepare(m *dataset.Media, n int) (any, int64, error) {
	var v scribeView
	if err := json.Unmarshal(m.Bytes, &v); err != nil {
		return nil, 0, err
	}
	p, err := viewOf(v.Image, v.Video)
	if err != nil {
		return nil, 0, err
	}
	planes := s.pixels(p)
	if s.changes() {
		return &scribeSeen{v.Camera, n, planes}, int64(4 * len(planes)), nil
	}
	f, err := s.features(s.shown(planes, v.Camera, -1, -1), n)
	if err == nil {
		err = s.images.Fits(m, f)
	}
	if err != nil {
		return nil, 0, err
	}
	return f, int64(len(f.Pixels)), nil
}

// features are those of a view [height width 3] from -1 to 1, one of n.
func (s *TokenPolicy) features(v []float32, n int) (*media.Features, error) {
	p := media.NewImage(s.Size[1], s.Size[0])
	for i, x := range v {
		p.Pix[i] = byte(math.Round(float64(x+1) * 127.5))
	}
	return s.images.Processor.Image.Image(p, n)
}

// Fill puts a batch's views, which the loader has prepared, into its microbatch.
func (s *TokenPolicy) Fill(mb *family.Microbatch, b *dataset.Batch) error {
	return s.images.FillFrom(mb, b, func(i int, v any) (*media.Features, error) {
		seen, ok := v.(*scribeSeen)
		if !ok {
			return v.(*media.Features), nil
		}
		segment := 0
		for segment+1 < len(b.CuSeqlens) && b.CuSeqlens[segment+1] <= b.Media[i].Spans[0].From {
			segment++
		}
		e := family.Encoded{Key: dataset.Draw(s.Seed, 0, b.SampleIDs[segment], 0, 0),
			Views: make([][]float32, seen.camera+1)}
		e.Views[seen.camera] = seen.planes
		s.change(&e, nil)
		f, err := s.features(e.Views[seen.camera], seen.of)
		if err != nil {
			return nil, err
		}
		return f, s.images.Fits(&b.Media[i], f)
	})
}
