package objective

import "math"

// Policy is what a loss of a policy makes of the rewards of groups of answers to one prompt each.
// In the words of the field: KL divergence.
type Policy struct {
	// Advantages of the answers of each group, from their rewards; nil where Tokens has those of each token.
	Advantages func(rewards [][]float64) [][]float64
	// Tokens are the advantages of each token of a step's answers, and their returns where Value learns them.
	Tokens func(p *Params, all []Drawn) (advantages, returns [][]float64)
	// Value is the loss that trains a head of values beside the policy, "" for none.
	Value string
	// Unjudged says that answers have no rewards.
	Unjudged bool
	// Share is the weight of a token of an answer of n tokens, in a step of so many answers and tokens,
	// where an answer may have most.
	Share func(n int, answers, tokens, most float64) float64
	// ClipLow and ClipHigh are those of Params by default.
	ClipLow, ClipHigh float64
}

// Drawn is what is known of an answer when it is drawn: numbers of each of its tokens, and the reward of all.
type Drawn struct {
	Reward                      float64
	LogProbs, Reference, Values []float32 // Reference and Values where the loss reads them
}

// over says of what a ratio of probabilities is.
type over int

const (
	token        over = iota // of each token
	sequenceMean             // of an answer's tokens, their geometric mean
	sequence                 // of an answer
)

// clip gives the loss of a token with ratio c, advantage a and log-probability l, and its derivatives by c
// and directly by l.
type clip func(p *Params, c, a, l float64) (loss, dc, dl float64)

// policyOf is the loss Σ weight·(clip + KL·k3·c) over drawn tokens, with k3 = e^q - q - 1, q the log-ratio
// of the reference (DeepSeek-V3.2 multiplies it by the ratio, as TRL does).
func policyOf(of over, f clip) func(*Params, *Rows, []float64) float64 {
	return func(p *Params, r *Rows, grad []float64) (loss float64) {
		sides, _ := gather(r)
		sums, byRatio := make([]float64, len(sides)), make([]float64, len(sides))
		for i, s := range r.Seq {
			if s >= 0 && r.Weight[i] != 0 {
				sums[s] += float64(r.LogP[i]) - r.at(i, Old)
			}
		}
		ratio := func(i int) (c, each float64) { // and what it changes by with a token's log-probability
			s := r.Seq[i]
			switch of {
			case sequenceMean:
				c = math.Exp(sums[s] / sides[s].N)
				return c, c / sides[s].N
			case sequence:
				c = math.Exp(sums[s])
			default:
				c = math.Exp(float64(r.LogP[i]) - r.at(i, Old))
			}
			return c, c
		}
		for i, s := range r.Seq {
			w := float64(r.Weight[i])
			if s < 0 || w == 0 {
				continue
			}
			c, each := ratio(i)
			r.clips(p, c, r.at(i, Advantage))
			x, dc, dl := f(p, c, r.at(i, Advantage), float64(r.LogP[i]))
			if p.KL > 0 {
				q := r.at(i, Reference) - float64(r.LogP[i])
				k := math.Exp(q) - q - 1
				x, dc, dl = x+p.KL*k*c, dc+p.KL*k, dl+p.KL*c*(1-math.Exp(q))
			}
			loss += w * x
			grad[i] += w * dl
			if of == token {
				grad[i] += w * dc * each
			} else {
				byRatio[s] += w * dc
			}
		}
		for i, s := range r.Seq {
			if of != token && s >= 0 && r.Weight[i] != 0 {
				_, each := ratio(i)
				grad[i] += byRatio[s] * each
			}
		}
		return loss
	}
}
