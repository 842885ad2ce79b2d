package format

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/lfactor/lfactor/dataset"
)

// PairEncoder makes two samples of a pair of answers, the chosen one first: the dataset.SampleEncoder of losses over
// pairs. Each sample says in a medium of the kind dataset.Answer which of its tokens are the answer.
type PairEncoder struct {
	Chat   dataset.ChatEncoder // nil where there is no template
	Text   dataset.Encoder
	EOS    int32 // ends an answer that is a text
	SeqLen int   // tokens of both answers with their prompts, at most
	Prompt bool  // tokens of prompts are learnt as well
}

// AnswerMark is what a sample's medium says.
type AnswerMark struct {
	Margin float32 `json:"margin"`
}

// Fingerprint implements dataset.SampleEncoder.
func (e *PairEncoder) Fingerprint() string {
	chat := ""
	if e.Chat != nil {
		chat = e.Chat.Fingerprint()
	}
	return HashOf("pairs 1", chat, e.Text.Fingerprint(), e.EOS, e.SeqLen, e.Prompt)
}

// EncodeSample implements dataset.SampleEncoder.
func (e *PairEncoder) EncodeSample(d *dataset.Document) ([]dataset.Sample, error) {
	p, err := ParsePair(d)
	if err != nil {
		return nil, err
	}
	both, err := e.sides(p)
	if err != nil {
		return nil, err
	}
	return e.marked(d, both, AnswerMark{p.Margin})
}

// sides encodes the two answers of a pair with their prompt.
func (e *PairEncoder) sides(p *Pair) ([]dataset.Sample, error) {
	if p.Chat {
		return e.chats(p)
	}
	return e.texts(p)
}

// answerOf is the place of a sample's first token of the answer.
func answerOf(s dataset.Sample) int {
	from := 0
	for from < len(s.Loss) && !s.Loss[from] {
		from++
	}
	return from
}

// marked adds to both samples the medium that says where their answers lie.
func (e *PairEncoder) marked(d *dataset.Document, both []dataset.Sample, says AnswerMark) ([]dataset.Sample, error) {
	mark, err := json.Marshal(says)
	if err != nil {
		return nil, fmt.Errorf("its margin: %w", err)
	}
	all := 0
	for i := range both {
		s := &both[i]
		all += len(s.Tokens)
		from := answerOf(*s)
		if from == len(s.Loss) || from == 0 {
			return nil, errors.New("the chat template writes no text of the assistant behind a prompt")
		}
		s.Media = []dataset.Media{{Kind: dataset.Answer, Key: d.Key + ".answer", Bytes: mark,
			Spans: []dataset.Span{{From: int32(from), To: int32(len(s.Tokens))}}}}
		if e.Prompt {
			s.Loss = nil
		}
	}
	if all > e.SeqLen {
		return nil, fmt.Errorf("its two answers with their prompts are %d tokens, over the sequence length of %d "+
			"(data.seq_len), and a pair is not cut", all, e.SeqLen)
	}
	return both, nil
}

// texts encodes answers that are texts: the answer begins where the tokens of prompt and answer together
// leave those of the prompt, for both answers at the earlier of the two places.
func (e *PairEncoder) texts(p *Pair) ([]dataset.Sample, error) {
	prompt, err := dataset.Encode(e.Text, p.Text, true)
	if err != nil {
		return nil, err
	}
	from := len(prompt)
	out := make([]dataset.Sample, 2)
	for i, answer := range []string{p.Chosen, p.Rejected} {
		ids, err := dataset.Encode(e.Text, p.Text+answer, true)
		if err != nil {
			return nil, err
		}
		if n := len(ids); n == 0 || ids[n-1] != e.EOS {
			ids = append(ids, e.EOS)
		}
		from, out[i].Tokens = min(from, prefix(ids, prompt)), ids
	}
	for i := range out {
		out[i].Loss = make([]bool, len(out[i].Tokens))
		for k := from; k < len(out[i].Loss); k++ {
			out[i].Loss[k] = true
		}
	}
	return out, nil
}

// prefix is how many ids two lists begin with together.
func prefix(a, b []int32) int {
	n := 0
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	return n
}

// chats encodes answers that are messages: what the assistant says in them is learnt, and not what it says
// in the prompt.
func (e *PairEncoder) chats(p *Pair) ([]dataset.Sample, error) {
	if e.Chat == nil {
		return nil, errors.New("it is a conversation, and there is no chat template to write it as text")
	}
	prompt, _, err := e.Chat.EncodeMessages(p.Prompt, p.Tools, p.Vars)
	if err != nil {
		return nil, err
	}
	out := make([]dataset.Sample, 2)
	for i, answer := range [][]dataset.Message{p.Better, p.Worse} {
		ids, loss, err := e.Chat.EncodeMessages(append(p.Prompt[:len(p.Prompt):len(p.Prompt)], answer...),
			p.Tools, p.Vars)
		if err != nil {
			return nil, err
		}
		for k := range prefix(ids, prompt) {
			loss[k] = false
		}
		out[i] = dataset.Sample{Tokens: ids, Loss: loss}
	}
	return out, nil
}
