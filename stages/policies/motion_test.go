package policies

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/dataset/format/recordings"
)

type rotationsGolden struct {
	Turns                    []map[string][]float64
	State                    []float64
	Actions, Relative, Delta [][]float64
}

func readRotations(t *testing.T) (want rotationsGolden) {
	t.Helper()
	b, err := os.ReadFile("testdata/rotations.json")
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(b, &want))
	require.NotEmpty(t, want.Turns)
	return want
}

// TestRotationsAreSciPys: every form becomes every other one as SciPy has it (bench/golden/rotations.py), near no turn
// and near half a turn too. Half a turn has two axes and a quaternion two signs: those are compared as matrices.
func TestRotationsAreSciPys(t *testing.T) {
	for i, forms := range readRotations(t).Turns {
		for from, v := range forms {
			r, err := rotationOf(from, v)
			require.NoError(t, err)
			require.InDeltaSlice(t, forms["matrix"], r.in("matrix"), 1e-12, "%d %s", i, from)
			for to, want := range forms {
				got := r.in(to)
				if i >= 5 {
					require.InDeltaSlice(t, want, got, 1e-9, "%d %s to %s", i, from, to)
				}
				again, err := rotationOf(to, got)
				require.NoError(t, err)
				require.InDeltaSlice(t, forms["matrix"], again.in("matrix"), 1e-9, "%d %s to %s", i, from,
					to)
			}
		}
	}
	r, err := rotationOf("6d", []float64{2, 0, 0, 5, 3, 0}) // neither of length 1 nor upright
	require.NoError(t, err)
	require.Equal(t, rotation{{1, 0, 0}, {0, 1, 0}, {0, 0, 1}}, r)
	for form, v := range map[string][]float64{"6d": {1, 0, 0, 2, 0, 0}, "quaternion": {0, 0, 0, 0},
		"matrix": make([]float64, 9)} {
		_, err := rotationOf(form, v)
		require.ErrorContains(t, err, "no rotation", form)
	}
	up, err := rotationOf("euler", []float64{0.3, 1.5707963267948966,
		0.1}) // the first and the third axis are one
	require.NoError(t, err)
	again, err := rotationOf("euler", up.in("euler"))
	require.NoError(t, err)
	require.InDeltaSlice(t, up.in("matrix"), again.in("matrix"), 1e-9)
}

// TestMotionIsOpenpis: relative and delta actions are those of bench/golden/rotations.py, and acting
// gives back what was recorded.
func TestMotionIsOpenpis(t *testing.T) {
	want := readRotations(t)
	for how, learnt := range map[string][][]float64{"relative": want.Relative, "delta": want.Delta} {
		m := newMotion(&configs.Policy{Actions: how, Absolute: []int{6},
			Rotations: []string{"state 3 axis_angle quaternion", "action 3 euler 6d"}})
		require.True(t, m.moves())
		got, err := m.learn(want.State, want.Actions)
		require.NoError(t, err)
		require.Len(t, got, len(learnt))
		for k := range learnt {
			require.InDeltaSlice(t, learnt[k], got[k], 1e-9, "%s %d", how, k)
		}
		for k, v := range m.act(want.State, got) {
			require.InDeltaSlice(t, want.Actions[k], v, 1e-9, "%s %d", how, k)
		}
		state, err := m.read(want.State)
		require.NoError(t, err)
		require.Len(t, state, 8)
		require.Equal(t, want.State[6], state[7])
		_, err = m.learn(want.State[:5], want.Actions)
		require.ErrorContains(t, err, "the state: 5 numbers, and a rotation ends at 6")
	}
	plain := newMotion(&configs.Policy{Actions: "absolute"})
	require.False(t, plain.moves())
}

// TestMotionFaults: what does not fit a robot is said with its key.
func TestMotionFaults(t *testing.T) {
	for _, c := range []struct {
		p       configs.Policy
		key, of string
	}{
		{configs.Policy{Actions: "relative"}, "policy.actions", "number 3 of an action"},
		{configs.Policy{Actions: "absolute", Rotations: []string{"action 2 euler 6d"}}, "policy.rotations",
			"ends at 5"},
		{configs.Policy{Actions: "delta", Absolute: []int{3, 4}}, "policy.absolute", "number 4"},
		{configs.Policy{Actions: "delta", Absolute: []int{3}, Rotations: []string{"action 0 euler 6d"}},
			"policy.rotations", "actions have 1 rotations and states 0"},
	} {
		m := newMotion(&c.p)
		var keys []string
		m.check(3, 4, func(key, why, _ string) {
			keys = append(keys, key)
			require.Contains(t, why, c.of)
		})
		require.Equal(t, []string{c.key}, keys)
	}
}

// numbersOnly is a data set of which nothing but its numbers is read.
type numbersOnly struct {
	recordings.Robots
	states, actions [][]float64
}

func (n numbersOnly) Steps() int64 { return int64(len(n.states)) }
func (n numbersOnly) Name() string { return "set" }
func (n numbersOnly) Numbers(each func(states, actions [][]float64)) error {
	each(n.states, n.actions)
	return nil
}

// TestMotionStatistics: statistics are of chunks as they are learnt: with what stands for actions behind
// the end, or without, and from steps before the present one.
func TestMotionStatistics(t *testing.T) {
	set := numbersOnly{states: [][]float64{{1}, {2}, {4}}, actions: [][]float64{{10}, {20}, {40}}}
	m := newMotion(&configs.Policy{Actions: "relative"})
	for _, c := range []struct {
		chunk, past int
		padding     bool
		min, max, n float64
		mean        float64
	}{ // 9 19, 18 38, 36 36: as 10-1, 20-1, 20-2, 40-2, 40-4 and its repetition
		{2, 0, true, 9, 38, 6, 156.0 / 6}, {2, 0, false, 9, 38, 5, 24},
		{2, 1, true, 8, 36, 6, (9 + 9 + 8 + 18 + 16 + 36) / 6.0}} {
		got, err := m.statistics(set, c.chunk, c.past, c.padding)
		require.NoError(t, err)
		require.Equal(t, []float64{c.min}, got[1].Min)
		require.Equal(t, []float64{c.max}, got[1].Max)
		require.InDelta(t, c.mean, got[1].Mean[0], 1e-12)
		require.Equal(t, []float64{4}, got[0].Max)
	}
	_, err := m.statistics(numbersOnly{}, 2, 0, true)
	require.ErrorContains(t, err, "no frame of set has a state and actions that can be read")
}
