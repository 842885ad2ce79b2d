package dataset

// MediaKind is what a file of a sample shows.
type MediaKind string

// The kinds of media.
const (
	Image MediaKind = "image"
	Video MediaKind = "video"
	Audio MediaKind = "audio"
	// Caption is the text of an image or a clip that a model of diffusion learns to draw.
	Caption MediaKind = "caption"
	// Answer is no file: what a sample says of its answer, whose tokens are its span.
	Answer MediaKind = "answer"
)

// Media is an image, video or sound of a sample: the file as it is, and the tokens that stand for it. Which
// processor makes a model's input of the bytes is the model's matter: Kind and the bytes decide.
type Media struct {
	Kind  MediaKind
	Key   string // the sample's key, a dot and the file's name behind it, for messages
	Bytes []byte // the file's content; it must not be changed
	// Spans are the places of the tokens that the encoder's output fills, in order. In a Sample they count from its
	// first token, in a Batch from its first row's. An image has one; a video may have one a frame.
	Spans []Span

	ready *ready // what LoaderConfig.Prepare makes of it, or nil
}

// Span is the tokens From to To-1.
type Span struct{ From, To int32 }

// Sample is one conversation or text as tokens, with the media that it speaks of.
type Sample struct {
	Tokens []int32
	Loss   []bool // of each token: the model is to learn it. nil: all
	Media  []Media
	// Alike is what samples of one row have in common where a model takes no others together, as the size of
	// images; "" goes with all that have none. Of several samples of a document it is the first one's.
	Alike string
}

// SampleEncoder turns the files of a sample (Document.Parts) into tokens: one Sample, or the several that
// were packed into one beforehand, which do not attend to each other. An error means that this sample cannot
// be used; it is quarantined. It is used by several goroutines at once.
type SampleEncoder interface {
	EncodeSample(d *Document) ([]Sample, error)
	Fingerprint() string
}

// MediaExpander knows a model's tokens for media. It is used by several goroutines at once.
type MediaExpander interface {
	// Mark returns the id that a chat template writes for one image, video or sound, and whether there is one.
	Mark(kind MediaKind) (id int32, ok bool)
	// Expand returns the tokens that come in place of the mark, and the stretches of them that the encoder's
	// output fills. n is how many media the conversation has, which some models go by. It looks at the
	// file's header at most. An error says what is wrong with the file.
	Expand(m *Media, n int) (ids []int32, fill []Span, err error)
	// Fingerprint changes with whatever changes the tokens.
	Fingerprint() string
}

// pieces is a document as tokens: samples laid end to end.
type pieces struct {
	ids   []int32
	loss  []bool // nil: every token is learnt
	cuts  []int  // where each sample but the last ends; nil for one
	media []Media
	alike string // Sample.Alike
}

// join lays samples end to end.
func join(samples []Sample) (p pieces) {
	masked := false
	for _, s := range samples {
		masked = masked || s.Loss != nil
	}
	if len(samples) > 0 {
		p.alike = samples[0].Alike
	}
	for i, s := range samples {
		at := int32(len(p.ids))
		p.ids = append(p.ids, s.Tokens...)
		if masked {
			p.loss = append(p.loss, s.Loss...)
			for len(p.loss) < len(p.ids) {
				p.loss = append(p.loss, true)
			}
		}
		for _, m := range s.Media {
			p.media = append(p.media, m.moved(at))
		}
		if i < len(samples)-1 {
			p.cuts = append(p.cuts, len(p.ids))
		}
	}
	return p
}

// moved returns the medium with its places counted from another start.
func (m Media) moved(by int32) Media {
	spans := make([]Span, len(m.Spans))
	for i, s := range m.Spans {
		spans[i] = Span{s.From + by, s.To + by}
	}
	m.Spans = spans
	return m
}

// end is the place behind the last of the medium's tokens.
func (m *Media) end() int {
	if len(m.Spans) == 0 {
		return 0
	}
	return int(m.Spans[len(m.Spans)-1].To)
}
