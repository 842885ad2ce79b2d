package policy

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/kernels/cpu"
	"github.com/lfactor/lfactor/stages/policies"
)

// raving is a counting policy whose every third chunk has a number that is none.
type raving struct {
	counting
	says float64
}

func (r *raving) Decide(asks []policies.Ask) ([]policies.Chunk, error) {
	out, err := r.counting.Decide(asks)
	for i := range out {
		if n := out[i].Actions[0][0]; int(n)%3 == 1 {
			out[i].Actions = [][]float64{{n, 1}, {n, r.says}, {n, 1}}
		}
	}
	return out, err
}

// TestPolicyFails: a chunk with a number that is none, or that float32 does not hold, does not leave the
// server: the robot is told whose fault it is, the connection goes on, and it is counted.
func TestPolicyFails(t *testing.T) {
	for _, says := range []float64{math.NaN(), math.Inf(1), math.Inf(-1), 1e39, -math.MaxFloat64} {
		s := newServer([]Policy{&raving{says: says}}, Options{Pause: time.Nanosecond})
		url := at(t, s)
		r := dial(t, url)
		for i := range 9 {
			actions, _, fault := r.infer(looks())
			if i%3 == 1 {
				require.Contains(t, fault, "the policy fails: number 1 of action 1 is ")
				continue
			}
			require.Empty(t, fault)
			require.Len(t, actions, 6)
		}
		require.EqualValues(t, 3, s.Summary().Failed)
		require.Eventually(t, func() bool { return s.Summary().Answered == 6 }, time.Minute, time.Millisecond,
			"an answer counts when it has left, which its robot may see first")
	}
}

// TestFinite: whatever a robot says it sees, no number leaves that is none, at every level of the kernels.
// With -long it is a million observations at each.
func TestFinite(t *testing.T) {
	most := 512
	if *long {
		most = 1_000_000
	}
	m := trains(t)
	for _, level := range cpu.Levels() {
		t.Setenv("LFACTOR_CPU", level)
		a, err := policies.NewActor(m)
		require.NoError(t, err)
		a.Steps = 1
		s := newServer([]Policy{a}, Options{})
		n, given, failed, refused := 0, 0, 0, 0
		for rng := rand.New(rand.NewPCG(58, 9)); n < most; {
			var batch []*job
			for ; len(batch) < 128 && n < most; n++ {
				v, err := Unpack(Pack(nil, strange(rng)))
				require.NoError(t, err)
				o, err := s.keys.observe(v, "red disc")
				if err != nil {
					refused++
					continue
				}
				ask, err := s.p.Ask(o.seen)
				if err != nil {
					refused++
					continue
				}
				batch = append(batch, &job{ask: ask})
			}
			s.r.answer(a, batch)
			for _, j := range batch {
				out := j.outcome
				if out.err != nil {
					require.ErrorContains(t, out.err, "the policy fails")
					failed++
					continue
				}
				given++
				for _, x := range actions(out.chunk.Actions).Floats() {
					require.False(t, math.IsNaN(x) || math.IsInf(x, 0))
				}
			}
		}
		t.Logf("%s: %d observations: %d given actions, %d refused, at %d the policy fails", level, n, given,
			refused, failed)
		require.Positive(t, given)
		require.Positive(t, refused)
		s.Close()
		a.Close()
	}
}

// strange is an observation of numbers by chance: usual ones, and those that floats have at their ends.
func strange(rng *rand.Rand) []Pair {
	x := func() float32 {
		switch rng.IntN(12) {
		case 0:
			return math.Float32frombits(rng.Uint32())
		case 1:
			return []float32{0, math.MaxFloat32, -math.MaxFloat32, math.SmallestNonzeroFloat32, 1e-30, 1e30,
				float32(math.NaN()), float32(math.Inf(1))}[rng.IntN(8)]
		}
		return float32(rng.NormFloat64() * math.Pow(10, float64(rng.IntN(9)-2)))
	}
	p := Array{DType: "|u1", Shape: []int{8, 8, 3}, Data: make([]byte, 192)}
	for i := range p.Data {
		p.Data[i] = byte(rng.Uint32())
	}
	return []Pair{{"observation/state", FloatsOf([]float32{x(), x()}, 2)}, {"observation/images/top", p},
		{"prompt", []string{"red disc", "", "?", "red red red"}[rng.IntN(4)]}}
}
