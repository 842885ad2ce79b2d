package core

import (
	"math"
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors"
)

// filled sets every field of a record, those of records in it too, to a number that no other has.
func filled(x reflect.Value, r *rand.Rand) {
	for i := range x.NumField() {
		switch f := x.Field(i); {
		case !f.CanSet() || f.Kind() == reflect.Slice:
		case f.Kind() == reflect.Struct:
			filled(f, r)
		case f.Kind() == reflect.Array:
			for k := range f.Len() {
				f.Index(k).SetFloat(r.NormFloat64() * 1e6)
			}
		case f.CanFloat():
			f.SetFloat(r.NormFloat64() * 1e6)
		case f.CanInt():
			f.SetInt(r.Int64N(1 << 30))
		case f.CanUint():
			f.SetUint(r.Uint64N(4))
		default:
			f.SetBool(r.IntN(2) == 1)
		}
	}
}

// trip checks that a record comes back from its numbers as it was, and that every field of it counts.
func trip[T any](t *testing.T, r *rand.Rand, values func(T) []float64, of func([]float64) T) {
	t.Helper()
	var x T
	filled(reflect.ValueOf(&x).Elem(), r)
	require.Equal(t, x, of(values(x)))
	require.Equal(t, values(x), values(of(values(x))))
}

// trips does so with every record.
func trips(t *testing.T, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 3))
	trip(t, r, Opening.Values, OpeningOf)
	trip(t, r, func(x Usage) []float64 { return x.Values() }, UsageOf)
	trip(t, r, Verdict.Values, VerdictOf)
	trip(t, r, Filed.Values, FiledOf)
	trip(t, r, Summary.Values, SummaryOf)
	trip(t, r, Slowness.Values, SlownessOf)
	trip(t, r, Copying.Values, CopyingOf)
	trip(t, r, Return.Values, ReturnOf)

	after := kept{r.Int64N(1 << 40), r.Int64N(1 << 40),
		LossScale{Scale: r.Float64(), Good: 3, Left: r.IntN(9)}}
	at := []Placed{{r.IntN(99), r.Perm(r.IntN(9) + 1)}, {r.IntN(99), r.Perm(3)}}
	v := AppendPlaced(Verdict{after: after, Moves: true}.Values(), at...)
	require.Equal(t, after, VerdictOf(v).after)
	require.Equal(t, after.step, verdictStep(v))
	require.Equal(t, at, Moves(v))
	require.True(t, MovesExperts(v) && IsVerdict(v))
	require.False(t, MovesExperts(verdictAlone(v)) || IsVerdict(Opening{}.Values()))
	require.True(t, IsVerdict(verdictAlone(v)))

	whole, buddies, now := keepOf(keepValues(after.step, []float64{9, 8}, after))
	require.Equal(t, []float64{9, 8}, buddies)
	require.Equal(t, after.step, whole)
	require.Equal(t, after, keptOf(now, LossScale{}))
	require.Equal(t, 7.5, tookOf(keptValues(7.5)))
	require.Equal(t, 3, CreditsOf(PutCredits(make([]float64, 1), 3)))

	last := remembered{pending: r.Int64N(99), half: seed%2 == 0, verdict: v}
	copies := []copied{{of: 6, step: after.step, kept: now}, {of: 7, step: after.step, kept: now}}
	h := holdingOf(5, claimValues(&last, copies))
	require.Equal(t, &holding{step: 5, pending: last.pending, half: last.half, copies: copies,
		verdicts: [][]float64{verdictAlone(v)}}, h)
	h = holdingOf(none, claimValues(&remembered{pending: none}, nil))
	require.Equal(t, &holding{step: none, pending: none}, h)

	loads := []Load{
		{Block: 1, Tokens: r.Float64(), Dropped: 2, Entropy: r.Float64(), Rows: []float64{1, r.Float64()}},
		{Block: 4, Rows: []float64{r.Float64()}}}
	norms := []ExpertNorms{{r.IntN(9), []int{1, 5}, []float64{r.Float64(), 2}}}
	more := AppendExpertNorms(new(Usage).Values(), norms)
	for _, l := range loads {
		more = AppendLoad(more, l)
	}
	gotNorms, rest, ok := expertNorms(Behind(more))
	require.True(t, ok)
	require.Equal(t, norms, gotNorms)
	require.Equal(t, loads, Loads(rest))
	laid := Laid{At: at, Loads: loads}
	require.Equal(t, laid, LaidOf(AppendLaid(nil, laid)))
	require.Equal(t, laid, FiledOf(Filed{Laid: laid}.Values()).Laid)
}

// TestRecords: every record comes back from its numbers.
func TestRecords(t *testing.T) {
	for seed := range uint64(50) {
		trips(t, seed)
	}
	x := Usage{Loss: math.Inf(1), Peak: 2}
	more := Usage{Loss: 1, Busy: 2, Wait: 3, Peak: 4, Over: 5, Wild: 6, CPU: 7, Queued: 8, Stood: 9, Gap: 10}
	x.add(more.Values())
	x.add(nil)
	short := Usage{Busy: 1}
	short.add([]float64{1, 2})
	require.Equal(t, Usage{Loss: 1, Busy: 3}, short)
	require.Equal(t, Usage{math.Inf(1), 2, 3, 4, 5, 6, 7, 8, 9, 10}, x)
	v := []float64{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 42}
	require.True(t, Same(v, x.Put(v)))
	require.Equal(t, []float64{42}, Behind(v))
	require.False(t, Same(v, x.Values()) || Same(nil, nil))
}

// FuzzRecords does the same with any seed, and reads numbers that nobody has written.
func FuzzRecords(f *testing.F) {
	f.Add(uint64(1), []byte{3, 1, 4, 1, 5})
	f.Fuzz(func(t *testing.T, seed uint64, raw []byte) {
		trips(t, seed)
		v := make([]float64, len(raw))
		for i, b := range raw {
			v[i] = float64(b)
		}
		require.Equal(t, len(v), min(len(v), UsageLen)+len(saidOf(v).more))
		_, _, _ = expertNorms(v)
		_ = Loads(v)
	})
}

// TestRecordsAllocateNothing: reading a record, and writing one over numbers that are there, allocates nothing.
func TestRecordsAllocateNothing(t *testing.T) {
	v, credits := Verdict{LR: 1}.Values(), make([]float64, 1)
	used := new(Usage).Values()
	m := &actors.Message{Values: used}
	sum := 0.0
	require.Zero(t, testing.AllocsPerRun(100, func() {
		x := UsageOf(m.Values)
		x.Busy++
		x.add(v)
		x.Put(m.Values)
		sum += VerdictOf(v).LR + float64(CreditsOf(PutCredits(credits, 2)))
	}))
	require.NotZero(t, sum)
}
