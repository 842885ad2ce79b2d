package token

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
)

// Kinds of pieces of a SentencePiece model.
const (
	pieceNormal  = 1
	pieceUnknown = 2
	pieceControl = 3
	pieceUser    = 4
	pieceUnused  = 5
	pieceByte    = 6
)

// sentencePiece is what a SentencePiece .model holds, a protocol buffer (sentencepiece_model.proto): the
// fields that decide how text is cut.
type sentencePiece struct {
	pieces      []spPiece
	bpe         bool
	byteBack    bool
	charsMap    []byte
	dummyPrefix bool
	tidySpaces  bool // no spaces at the ends, and single ones between
	escape      bool
	unk, bos    int
	eos         int
}

type spPiece struct {
	text  string
	score float32
	kind  int
}

// Fields of ModelProto, ModelProto.SentencePiece, TrainerSpec and NormalizerSpec.
const (
	spPieces, spTrainer, spNormalizer                                = 1, 2, 3
	spText, spScore, spKind                                          = 1, 2, 3
	spModelType, spByteFallback, spUnkID, spBOSID, spEOSID, spSuffix = 3, 35, 40, 41, 42, 24
	spCharsMap, spDummyPrefix, spTidy, spEscape                      = 2, 3, 4, 5
)

// parseSentencePiece reads a .model file.
func parseSentencePiece(b []byte) (*sentencePiece, error) {
	m := &sentencePiece{dummyPrefix: true, tidySpaces: true, escape: true, unk: 0, bos: 1, eos: 2}
	err := eachField(b, func(n protowire.Number, v uint64, sub []byte) error {
		switch n {
		case spPieces:
			p := spPiece{kind: pieceNormal}
			err := eachField(sub, func(n protowire.Number, v uint64, s []byte) error {
				switch n {
				case spText:
					p.text = string(s)
				case spScore:
					p.score = math.Float32frombits(uint32(v))
				case spKind:
					p.kind = int(v)
				}
				return nil
			})
			m.pieces = append(m.pieces, p)
			return err
		case spTrainer:
			return eachField(sub, m.trainer)
		case spNormalizer:
			return eachField(sub, func(n protowire.Number, v uint64, s []byte) error {
				switch n {
				case spCharsMap:
					m.charsMap = s
				case spDummyPrefix:
					m.dummyPrefix = v != 0
				case spTidy:
					m.tidySpaces = v != 0
				case spEscape:
					m.escape = v != 0
				}
				return nil
			})
		}
		return nil
	})
	if err == nil && len(m.pieces) == 0 {
		err = errors.New("it has no pieces")
	}
	if err == nil && m.unk >= len(m.pieces) {
		err = fmt.Errorf("the unknown piece %d is outside of its %d", m.unk, len(m.pieces))
	}
	return m, err
}

// trainer reads one field of the TrainerSpec.
func (m *sentencePiece) trainer(n protowire.Number, v uint64, _ []byte) error {
	switch n {
	case spModelType:
		if v != 1 && v != 2 {
			return fmt.Errorf("models of type %d, words or characters, are not supported", v)
		}
		m.bpe = v == 2
	case spByteFallback:
		m.byteBack = v != 0
	case spSuffix:
		if v != 0 {
			return errors.New("white space as a suffix is not supported")
		}
	case spUnkID:
		m.unk = int(int32(v))
	case spBOSID:
		m.bos = int(int32(v))
	case spEOSID:
		m.eos = int(int32(v))
	}
	return nil
}

// eachField reads the fields of a message: their number and their value, or their bytes.
func eachField(b []byte, use func(n protowire.Number, v uint64, s []byte) error) error {
	for len(b) > 0 {
		n, typ, size := protowire.ConsumeTag(b)
		if size < 0 {
			return fmt.Errorf("it is no SentencePiece model: %w", protowire.ParseError(size))
		}
		b = b[size:]
		var v uint64
		var s []byte
		switch typ {
		case protowire.VarintType:
			v, size = protowire.ConsumeVarint(b)
		case protowire.Fixed32Type:
			var f uint32
			f, size = protowire.ConsumeFixed32(b)
			v = uint64(f)
		case protowire.BytesType:
			s, size = protowire.ConsumeBytes(b)
		default:
			size = protowire.ConsumeFieldValue(n, typ, b)
		}
		if size < 0 {
			return fmt.Errorf("it is no SentencePiece model: %w", protowire.ParseError(size))
		}
		if err := use(n, v, s); err != nil {
			return err
		}
		b = b[size:]
	}
	return nil
}

// file makes of a model what tokenizer.json would hold. Control pieces and those of the user are found in
// text as whole.
func (m *sentencePiece) file() (*file, error) {
	f := &file{Model: modelFile{Type: "Unigram", Vocab: map[string]int32{}, ByteFallback: m.byteBack,
		FuseUnk: true, Single: true}}
	unk := int32(m.unk)
	f.Model.UnkID = &unk
	if m.bpe {
		f.Model.Type, f.Model.UnkToken, f.Model.Ranks = "BPE", &m.pieces[m.unk].text, map[string]int32{}
	}
	var scores []float32
	for _, p := range m.pieces {
		if p.kind == pieceNormal || p.kind == pieceUser {
			scores = append(scores, -p.score)
		}
	}
	slices.Sort(scores)
	scores = slices.Compact(scores)
	for i, p := range m.pieces {
		if _, twice := f.Model.Vocab[p.text]; twice || p.text == "" {
			return nil, fmt.Errorf("piece %d, %q, is there twice or empty", i, p.text)
		}
		f.Model.Vocab[p.text] = int32(i)
		switch p.kind {
		case pieceNormal:
			if rank, _ := slices.BinarySearch(scores, -p.score); m.bpe {
				f.Model.Ranks[p.text] = int32(rank)
			}
		case pieceControl, pieceUser, pieceUnknown:
			f.AddedTokens = append(f.AddedTokens, addedToken{ID: int32(i), Content: p.text,
				Special: p.kind != pieceUser})
		}
		f.Model.Pieces = append(f.Model.Pieces, scored{p.text, float64(p.score), false})
		if p.kind != pieceNormal {
			f.Model.Pieces[i].hidden = true
		}
	}
	f.normal = m.normalizer()
	f.Decoder = m.decoder()
	return f, f.check()
}

// normalizer maps text as the model says. Spaces become ▁.
func (m *sentencePiece) normalizer() func() (normalizer, error) {
	return func() (normalizer, error) {
		chars := func(s string) string { return s }
		if len(m.charsMap) > 0 {
			p, err := newPrecompiled(m.charsMap)
			if err != nil {
				return nil, err
			}
			chars = p.normalizeLongest
		}
		return func(s string) string {
			s = chars(s)
			if m.tidySpaces {
				s = strings.Join(strings.FieldsFunc(s, func(r rune) bool { return r == ' ' }), " ")
			}
			if m.dummyPrefix {
				s = prepend(" ", s)
			}
			if m.escape {
				s = strings.ReplaceAll(s, " ", spaceMark)
			}
			if m.tidySpaces { // a mark that stood in the text is one there too
				s = strings.TrimRight(s, spaceMark)
			}
			return s
		}, nil
	}
}

// decoder writes the steps of decoding as tokenizer.json has them, so that both kinds of file share one decoder.
func (m *sentencePiece) decoder() json.RawMessage {
	steps := `{"type":"Replace","pattern":{"String":"▁"},"content":" "},{"type":"ByteFallback"},{"type":"Fuse"}`
	if m.dummyPrefix {
		steps += `,{"type":"Strip","content":" ","start":1,"stop":0}`
	}
	return json.RawMessage(`{"type":"Sequence","decoders":[` + steps + `]}`)
}
