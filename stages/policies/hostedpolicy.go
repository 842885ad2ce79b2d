package policies

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/dataset/format"
	"github.com/lfactor/lfactor/dataset/format/recordings"
	"github.com/lfactor/lfactor/dataset/token"
	"github.com/lfactor/lfactor/stages/checkpoint"
	"github.com/lfactor/lfactor/stages/family"
	"github.com/lfactor/lfactor/stages/noise"
)

// HostedPolicy is a hosted policy: a vision-language model with an expert for actions behind it (family.Model.Act). It reads
// views and task as a chat; the expert makes actions of the states that the model has of them, and no text is written.
type HostedPolicy struct{ *TokenPolicy }

// NewHostedPolicy reads what a run says of such a policy, whose model and tokenizer are given. Saved is its
// checkpoint, whose scales it acts by; nil where it begins to learn.
func NewHostedPolicy(cfg *configs.Config, m *family.Model, tok *token.Tokenizer, conf *token.Config,
	saved *checkpoint.Reader, notes io.Writer) (*HostedPolicy, error) {
	x, err := tokenPolicyRobots(cfg, m.Denoiser, saved)
	if err != nil {
		return nil, err
	}
	g := &HostedPolicy{&TokenPolicy{Robots: x, longest: cfg.Run.Data.SeqLen}}
	return g, g.asks(cfg, m, tok, conf, notes)
}

// Samples is the encoder of frames.
func (g *HostedPolicy) Samples() dataset.SampleEncoder { return g }

// Fingerprint implements dataset.SampleEncoder.
func (g *HostedPolicy) Fingerprint() string {
	parts := []any{"guide 1", g.print(g.encoder.Fingerprint())}
	if n := g.D.Readouts; n > 0 {
		parts = append(parts, n)
	}
	return format.HashOf(parts...)
}

// EncodeSample implements dataset.SampleEncoder: a question with the views that there are, and behind its
// tokens one whose weight in the loss is that of the sample. Beside the views lies what the actions are.
func (g *HostedPolicy) EncodeSample(d *dataset.Document) ([]dataset.Sample, error) {
	b, ok := d.Part("json")
	if !ok {
		return nil, fmt.Errorf("sample %q has no frame", d.Key)
	}
	var f recordings.RobotFrame
	if err := json.Unmarshal(b, &f); err != nil {
		return nil, err
	}
	scale, _ := g.of(f.Set)
	out, err := g.TokenPolicy.asked(d.Key, &f, scale)
	if err != nil {
		return nil, err
	}
	for range g.D.Readouts { // behind the question, in the place of tokens
		out.Tokens, out.Loss = append(out.Tokens, g.eos), append(out.Loss, false)
	}
	n := len(out.Tokens)
	if n+1 > g.longest {
		return nil, fmt.Errorf("%d tokens, and data.seq_len is %d", n+1, g.longest)
	}
	out.Tokens, out.Loss = append(out.Tokens, g.eos), append(make([]bool, n, n+1), true)
	f.Images, f.Videos, f.Before = nil, nil, nil
	if b, err = json.Marshal(f); err != nil {
		return nil, err
	}
	if _, err := g.sample(b); err != nil {
		return nil, err
	}
	out.Media = append(out.Media, dataset.Media{Kind: dataset.Caption, Key: d.Key, Bytes: b,
		Spans: []dataset.Span{{From: int32(n - 1), To: int32(n)}}})
	return []dataset.Sample{out}, nil
}

// sample is what is learnt of a frame beside its question.
func (g *HostedPolicy) sample(b []byte) (*family.Encoded, error) {
	var f recordings.RobotFrame
	if err := json.Unmarshal(b, &f); err != nil {
		return nil, err
	}
	scale, robot := g.of(f.Set)
	e, err := g.state(scale, f.State)
	if err != nil {
		return nil, err
	}
	if len(f.Actions) != g.Chunk {
		return nil, fmt.Errorf("%d actions, and the model gives %d at once", len(f.Actions), g.Chunk)
	}
	actions, err := g.aims(&f, scale)
	if err != nil {
		return nil, err
	}
	w := g.D.Width()
	e.X0 = make([]float32, g.Chunk*w)
	for k, a := range actions {
		if len(a) > w {
			return nil, fmt.Errorf("actions of %d numbers, and the model has room for %d", len(a), w)
		}
		for i, v := range a {
			e.X0[k*w+i] = float32(v)
		}
	}
	if e.Real, e.Robot = len(scale.Action.Mid), robot; !g.Policy.Padding || g.D.Masked {
		e.Pad, e.Lead = f.Pad, f.Lead
	}
	return e, nil
}

// state is a sample of a robot's state, as a robot has its numbers.
func (g *HostedPolicy) state(scale RobotScale, state []float64) (*family.Encoded, error) {
	told, err := g.motion.read(state)
	if err == nil {
		told, err = scale.State.Of(told)
	}
	n := g.D.Sight.State
	if err == nil && len(told) > n {
		err = fmt.Errorf("%d numbers, and the model has room for %d", len(told), n)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", g.Policy.State, err)
	}
	e := &family.Encoded{Grid: g.D.ChunkGrid(), State: make([]float32, n)}
	for i, v := range told {
		e.State[i] = float32(v)
	}
	return e, nil
}

// Prepare is the dataset.Prepare of the model: of a view as of a policy that writes, of a frame a
// *family.Encoded without its place.
func (g *HostedPolicy) Prepare(m *dataset.Media, n int) (any, int64, error) {
	if m.Kind != dataset.Caption {
		return g.TokenPolicy.Prepare(m, n-1) // one of the sample's media is the frame
	}
	e, err := g.sample(m.Bytes)
	if err != nil {
		return nil, 0, err
	}
	return e, int64(4 * (len(e.X0) + len(e.State))), nil
}

// Fill puts a batch's views and frames, which the loader has prepared, into its microbatch.
func (g *HostedPolicy) Fill(mb *family.Microbatch, b *dataset.Batch) error {
	views := *b
	views.Media = nil
	var items []family.Encoded
	var told, ends []int32
	for i := range b.Media {
		m := &b.Media[i]
		if m.Kind != dataset.Caption {
			views.Media = append(views.Media, *m)
			continue
		}
		v, err := m.Take()
		if err != nil {
			return err
		}
		e, last, segment := *v.(*family.Encoded), m.Spans[0].From, 0
		for segment+1 < len(b.CuSeqlens) && b.CuSeqlens[segment+1] <= last {
			segment++
		}
		e.From, e.Key = b.CuSeqlens[segment], dataset.Draw(g.Seed, 0, b.SampleIDs[segment], 0, 0)
		e.Told = int(last-e.From+1) - g.D.Readouts
		told, ends = append(told, int32(e.Told)), append(ends, last+1)
		if (noise.Key{Sample: e.Key, Draw: drawStateless}).Uniform(0) < g.Policy.Stateless {
			e.State = make([]float32, len(e.State))
		}
		items = append(items, e)
	}
	mb.IDs = withReadouts(mb.IDs, ends, g.D.Readouts)
	if err := g.TokenPolicy.Fill(mb, &views); err != nil {
		return err
	}
	if err := g.D.Check(items, len(mb.IDs)); err != nil {
		return err
	}
	mb.More = family.EncodedKey.With(mb.More, items)
	if g.D.Readouts > 0 { // no question reads what is behind it
		mb.More = family.PromptsKey.With(mb.More, told)
	}
	return nil
}

// withReadouts are ids without those in whose place n readouts lie before each of the ends. A batch's own stay
// as they are.
func withReadouts(ids, ends []int32, n int) []int32 {
	if n == 0 {
		return ids
	}
	ids = slices.Clone(ids)
	for _, end := range ends {
		for k := range n {
			ids[int(end)-1-k] = -1
		}
	}
	return ids
}

// see makes of what a robot sees what the policy reads.
func (g *HostedPolicy) see(r Seen) (*family.Encoded, error) {
	q, err := g.ask(r)
	if err != nil {
		return nil, err
	}
	if len(q.ids) == 0 {
		return nil, errors.New("the model is asked nothing: write something in policy.question")
	}
	e, err := g.state(g.Scale, r.State)
	if err != nil {
		return nil, err
	}
	e.Robot, e.IDs, e.Told, e.Seen = g.robot, q.ids, len(q.ids), q.views
	return e, nil
}
