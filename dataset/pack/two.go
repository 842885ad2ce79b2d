package pack

import (
	"math"
	"slices"
)

// Pair is a sample to share out by two costs, that of the vision tower and that of the language model.
type Pair struct {
	Vision, Language float64 // work, each in a unit of its own
	Tokens           int
	Bytes            int64
	Home             int // the rank that has it
}

// PairBalance is who does what.
type PairBalance struct {
	Rank             []int
	Vision, Language float64 // imbalance, as Balance's
	Tokens           float64 // the most tokens of a rank over the mean, 1 for all alike
	Moved            int64   // bytes of the samples that leave their home
}

// pairTolerance is the imbalance of either cost at which AssignPairs stops.
const pairTolerance = 0.004

// AssignPairs shares samples out so that all ranks have the same work of both kinds, and no rank more than
// tokensCap times the mean of the tokens. It starts at the homes and moves or swaps single samples, each
// time the one that lowers the sum of the squared deviations most, so that few bytes move. With sameCount it
// only swaps, and every rank keeps its number of samples. Equal arguments give equal results.
func AssignPairs(pairs []Pair, ranks int, tokensCap float64, sameCount bool) PairBalance {
	p := &pairing{sameCount: sameCount, pairs: pairs, scale: make([]point, len(pairs)), rank: make([]int, len(pairs)),
		held: make([][]int, ranks), sum: make([]point, ranks), limit: tokensCap - 1}
	p.normalise(ranks)
	for range pairRounds * ranks {
		if !p.improve() {
			break
		}
	}
	out := PairBalance{Rank: p.rank, Tokens: 1}
	for r := range p.sum {
		out.Vision, out.Language = max(out.Vision, p.sum[r][0]), max(out.Language, p.sum[r][1])
		out.Tokens = max(out.Tokens, 1+p.sum[r][2])
	}
	for i := range pairs {
		if p.rank[i] != pairs[i].Home {
			out.Moved += pairs[i].Bytes
		}
	}
	return out
}

const (
	pairRounds   = 60 // changes a rank, at most
	pairPartners = 8  // ranks looked at to take work
	pairSamples  = 40 // samples of a rank that are tried in swaps
)

// point is a rank's or a sample's vision work, language work and tokens, each as a fraction of the mean of a rank.
type point [3]float64

// pairing is an assignment being improved. sum is a rank's work less the mean, so that 0 is wanted.
type pairing struct {
	pairs     []Pair
	scale     []point // of each sample
	rank      []int
	held      [][]int
	sum       []point
	limit     float64 // of the tokens
	sameCount bool
	turn      int // varies which samples are tried
}

// normalise expresses costs in units of the mean load of a rank, so that vision, language and
// tokens can be compared; the sums are then deviations from the mean.
func (p *pairing) normalise(ranks int) {
	var total point
	for _, x := range p.pairs {
		total[0], total[1], total[2] = total[0]+x.Vision, total[1]+x.Language, total[2]+float64(x.Tokens)
	}
	for r := range p.sum {
		for k := range total {
			if total[k] > 0 {
				p.sum[r][k] = -1
			}
		}
	}
	for i, x := range p.pairs {
		for k, v := range [3]float64{x.Vision, x.Language, float64(x.Tokens)} {
			if total[k] > 0 {
				p.scale[i][k] = v * float64(ranks) / total[k]
				p.sum[x.Home][k] += p.scale[i][k]
			}
		}
		p.rank[i] = x.Home
		p.held[x.Home] = append(p.held[x.Home], i)
	}
}

// excess is how far a rank is above the tolerated imbalance. It is 0 or negative for a rank within it.
func (p *pairing) excess(r int) float64 {
	s := p.sum[r]
	return max(s[0]-pairTolerance, s[1]-pairTolerance, s[2]-p.limit)
}

// badness is the squared deviation of a rank's work from the mean. Tokens add to it only above nine tenths of the cap.
func (p *pairing) badness(s point) float64 {
	b := s[0]*s[0] + s[1]*s[1]
	if over := s[2] - p.limit*0.9; over > 0 {
		b += 100 * over * over
	}
	return b
}

// improve makes one change that lowers the imbalance. It tries the worst rank first, and then the other ranks above the
// tolerance, the worst first. It returns false if all ranks are within the tolerance or no change helps.
func (p *pairing) improve() bool {
	high, most := 0, math.Inf(-1)
	for r := range p.sum {
		if e := p.excess(r); e > most {
			high, most = r, e
		}
	}
	if most <= 0 {
		return false
	}
	if p.relieve(high) {
		return true
	}
	var others []held
	for r := range p.sum {
		if e := p.excess(r); r != high && e > 0 {
			others = append(others, held{-e, int32(r)})
		}
	}
	slices.SortFunc(others, compareHeld)
	return slices.ContainsFunc(others, func(o held) bool { return p.relieve(int(o.id)) })
}

// relieve carries out the move or swap that takes most from a rank. It returns false if none lowers the imbalance.
func (p *pairing) relieve(high int) bool {
	best := pairChange{}
	for _, low := range p.partners(high) {
		if !p.sameCount {
			p.moves(high, low, &best)
		}
		p.swaps(high, low, &best)
	}
	if best.gain <= 1e-15 {
		return false
	}
	p.move(best.give, best.high, best.low)
	if best.take >= 0 {
		p.move(best.take, best.low, best.high)
	}
	p.turn++
	return true
}

// partners are the ranks that would best take a step of the worst rank's kind of work.
func (p *pairing) partners(high int) []int {
	s := p.sum[high]
	order := make([]int, 0, len(p.sum)-1)
	for r := range p.sum {
		if r != high {
			order = append(order, r)
		}
	}
	// least: differs most in direction
	opposite := func(r int) float64 { return p.sum[r][0]*s[0] + p.sum[r][1]*s[1] }
	slices.SortFunc(order, func(a, b int) int {
		return compareHeld(held{opposite(a), int32(a)}, held{opposite(b), int32(b)})
	})
	return order[:min(pairPartners, len(order))]
}

// pairChange is a sample that goes from one rank to another, and one that comes back.
type pairChange struct {
	high, low, give, take int
	gain                  float64
}

// moves weighs giving each pair of the fuller rank to the emptier one.
func (p *pairing) moves(high, low int, best *pairChange) {
	before := p.badness(p.sum[high]) + p.badness(p.sum[low])
	for _, i := range p.held[high] {
		p.weigh(pairChange{high: high, low: low, give: i, take: -1}, p.scale[i], before, best)
	}
}

// swaps weighs exchanging pairs. Only some are tried in each turn, and others in the next, since all would be too many.
func (p *pairing) swaps(high, low int, best *pairChange) {
	before := p.badness(p.sum[high]) + p.badness(p.sum[low])
	hi, lo := p.held[high], p.held[low]
	for a := range min(pairSamples, len(hi)) {
		i := hi[(a+p.turn*pairSamples)%len(hi)]
		for b := range min(pairSamples, len(lo)) {
			j := lo[(b+p.turn*pairSamples)%len(lo)]
			d := p.scale[i]
			for k := range d {
				d[k] -= p.scale[j][k]
			}
			p.weigh(pairChange{high: high, low: low, give: i, take: j}, d, before, best)
		}
	}
}

// weigh keeps a change, which takes work d from one rank to the other, if it is the best so far.
func (p *pairing) weigh(c pairChange, d point, before float64, best *pairChange) {
	hi, lo := p.sum[c.high], p.sum[c.low]
	for k := range d {
		hi[k], lo[k] = hi[k]-d[k], lo[k]+d[k]
	}
	if c.gain = before - p.badness(hi) - p.badness(lo); c.gain > best.gain {
		*best = c
	}
}

func (p *pairing) move(i, from, to int) {
	at := slices.Index(p.held[from], i)
	p.held[from] = slices.Delete(p.held[from], at, at+1)
	p.held[to] = append(p.held[to], i)
	p.rank[i] = to
	for k := range p.scale[i] {
		p.sum[from][k] -= p.scale[i][k]
		p.sum[to][k] += p.scale[i][k]
	}
}
