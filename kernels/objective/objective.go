package objective

import (
	"fmt"
	"hash/fnv"
	"slices"
)

// Params are the numbers of a loss; each loss says which it reads.
type Params struct {
	Beta      float64 // strength of the preference, or of the distance to the reference
	Gamma     float64 // margin that the chosen answer is to win by
	Smoothing float64 // share of the labels that are wrong
	Text      float64 // weight of the language model's own loss on the chosen answer
	Center    float64 // how strongly scores are held around 0
	// ClipLow and ClipHigh say how far a ratio of probabilities may go below and above 1; KL is the weight
	// of the distance to the reference policy. Of losses of policies.
	ClipLow, ClipHigh, KL float64
	// Desirable and Undesirable weigh single answers that are good or bad.
	Desirable, Undesirable float64
	// Discount is γ and Lambda λ of generalised advantage estimation, Value the weight of the loss of values,
	// and ClipValue how far a value may move.
	Discount, Lambda, Value, ClipValue float64
	Mix                                float64 // of teacher and student in what both are compared with
	Temperature                        float64 // that similarities are divided by
	Pooling                            float64 // PoolMean or PoolLast
}

// Vector and ParamsOf carry parameters through a tensor of float32s.
func (p Params) Vector() []float32 {
	return []float32{float32(p.Beta), float32(p.Gamma), float32(p.Smoothing), float32(p.Text), float32(p.Center),
		float32(p.ClipLow), float32(p.ClipHigh), float32(p.KL), float32(p.Desirable), float32(p.Undesirable),
		float32(p.Discount), float32(p.Lambda), float32(p.Value), float32(p.ClipValue), float32(p.Mix),
		float32(p.Temperature), float32(p.Pooling)}
}

// ParamsOf is the inverse of Params.Vector.
func ParamsOf(v []float32) Params {
	return Params{Beta: wide(v[0]), Gamma: wide(v[1]), Smoothing: wide(v[2]), Text: wide(v[3]), Center: wide(v[4]),
		ClipLow: wide(v[5]), ClipHigh: wide(v[6]), KL: wide(v[7]), Desirable: wide(v[8]), Undesirable: wide(v[9]),
		Discount: wide(v[10]), Lambda: wide(v[11]), Value: wide(v[12]), ClipValue: wide(v[13]), Mix: wide(v[14]),
		Temperature: wide(v[15]), Pooling: wide(v[16])}
}

// wide is the number with the fewest digits that rounds to a float32, as a file has it: 0.1 and not 0.100000001.
func wide(x float32) float64 {
	var v float64
	if _, err := fmt.Sscan(fmt.Sprint(x), &v); err != nil {
		return float64(x) // NaN and infinities
	}
	return v
}

// The columns of Rows.More.
const (
	Reference = iota // log-probability under the reference policy
	Language         // weight of the row's own loss of a language model, 0 for none
	Margin           // how much better the chosen answer is said to be; the same in all rows of a pair
	Old              // log-probability when the token was drawn, or before the first update by it
	Advantage        // of the token, or of its answer
	Return           // what the value of the token's place was to be
	Worth            // the value when the token was drawn
	Fresh            // 1 where the weights that drew the token are those that train on it, else 0
	Columns
)

// Rows are the scored rows of a microbatch. Row i is a token of sequence Seq[i].
type Rows struct {
	// LogP is the log-probability of the token, or what the model gives a row for losses that read scores.
	LogP []float32
	// Seq counts the sequences from 0, chosen and rejected answers in turn; -1 is a row of none.
	Seq []int32
	// Weight is the share of the row's sample in the step where the row belongs to the answer, else 0.
	Weight []float32
	More   []float32 // [rows Columns]
	// Logit is the mean of the row's logits over the vocabulary, which Look alone reads; nil where there are none.
	Logit []float32
	seen  []float64 // by Look, else nil
}

// More of row i in a column.
func (r *Rows) at(i, column int) float64 { return float64(r.More[i*Columns+column]) }

// Loss is a loss over rows.
type Loss struct {
	Name, Doc, Source string
	Reads             []string // keys below objective that it reads beside kind
	Reference         bool     // it compares with a reference policy
	// Score says that it reads what a head of one number gives in place of log-probabilities.
	Score bool
	// Mean says that rewards of answers are means over their tokens and no sums.
	Mean bool
	// Judged says that it learns from single answers, each with one of another prompt behind it: Margin is
	// above 0 in rows of good ones and below 0 of bad ones.
	Judged bool
	// Prompts says that the loss of a language model counts the tokens of the prompt too.
	Prompts bool
	// Held says that the derivatives leave out what some part of the loss changes by, so that they are not its own.
	Held bool
	// Part says that it is a part of another loss, and not one to train by.
	Part bool
	// Policy says how rewards of drawn answers become advantages and weights; nil for losses of pairs.
	Policy *Policy
	// Logits gives the loss of one row of logits beside a teacher's, and its derivatives; Of is nil then.
	Logits func(p *Params, z, teacher []float32, grad []float64) float64
	// Vectors gives the loss of sequences' vectors, and adds its derivatives by them to grad; Of is nil then.
	Vectors func(p *Params, v *Vectors, grad []float64) float64
	// Of gives the loss and adds its derivatives by LogP to grad.
	Of func(p *Params, r *Rows, grad []float64) float64
}

// Data is what it learns from, as kinds of data are called: "prompts", "pairs", "judged" or "similar", and "" for texts
// and conversations.
func (l *Loss) Data() string {
	switch {
	case l.Policy != nil:
		return "prompts"
	case l.Logits != nil:
		return ""
	case l.Vectors != nil:
		return "similar"
	case l.Judged:
		return "judged"
	}
	return "pairs"
}

var all = map[string]*Loss{}

// register enters a loss.
func register(l Loss) struct{} {
	if all[l.Name] != nil {
		panic("objective: two losses are named " + l.Name)
	}
	all[l.Name] = &l
	return struct{}{}
}

// Names lists the losses to train by.
func Names() []string {
	return slices.DeleteFunc(Known(), func(n string) bool { return all[n].Part })
}

// Known lists all losses, with those that are parts of others.
func Known() []string {
	var out []string
	for n := range all {
		out = append(out, n)
	}
	slices.Sort(out)
	return out
}

// Compares reports whether a loss with parameters reads the reference policy.
func (l *Loss) Compares(p Params) bool { return l.Reference || l.Policy != nil && p.KL > 0 }

// Lookup is the loss of a name, nil if there is none.
func Lookup(name string) *Loss { return all[name] }

// Number stands for a loss in a call: it depends on its name alone.
func (l *Loss) Number() int {
	h := fnv.New32a()
	_, _ = h.Write([]byte(l.Name)) // a hash takes everything
	return int(h.Sum32() >> 1)
}

// Numbered is the loss of a number.
func Numbered(n int) *Loss {
	for _, name := range Known() {
		if all[name].Number() == n {
			return all[name]
		}
	}
	panic(fmt.Sprintf("objective: no loss has the number %d", n))
}
