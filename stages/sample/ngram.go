package sample

import "cmp"

// ngramMost and ngramLeast are how many last tokens are looked for in what came before, the most first.
const (
	ngramMost  = 4
	ngramLeast = 2
)

// ngramProposer proposes what stood behind the last tokens where they stood before, in the prompt or in the answer
// (prompt lookup decoding): no model is asked, and texts that quote what they were given gain.
type ngramProposer struct{ ahead int }

func (x *ngramProposer) forget(*sequence) {}
func (x *ngramProposer) flush()           {}
func (x *ngramProposer) close()           {}

func (x *ngramProposer) propose(e *Engine) error {
	most := min(cmp.Or(x.ahead, aheadUsual), e.o.Rows/max(1, len(e.running))-1) // all running sequences have room in a step
	for _, s := range e.running {
		if s.drafts = nil; len(s.tokens)-s.done == 1 {
			s.drafts = behind(s.tokens, roomFor(e, s, most))
		}
	}
	return nil
}

// behind gives n tokens as they stood behind the last place where the last tokens stood before, nil where there is none.
func behind(tokens []int32, n int) []int32 {
	if n <= 0 {
		return nil
	}
	end := len(tokens)
	at, most := 0, ngramLeast-1 // the longest that stood there, the last of these
	for i := end - 1; i > 0 && most < ngramMost; i-- {
		same := 0
		for same < min(i, ngramMost) && tokens[i-1-same] == tokens[end-1-same] {
			same++
		}
		if same > most {
			at, most = i, same
		}
	}
	if at == 0 {
		return nil
	}
	out := make([]int32, n)
	for k := range out {
		if at+k < end {
			out[k] = tokens[at+k]
		} else {
			out[k] = out[at+k-end] // what repeats goes on
		}
	}
	return out
}
