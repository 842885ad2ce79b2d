package run

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/configs"
)

// left is a Fleet whose leader has ended before.
type left struct {
	Fleet
	ended  int
	others map[int]Inherited
}

func (l *left) Inherited() (int, map[int]Inherited) { return l.ended, l.others }

func (l *left) On() map[int]string { return map[int]string{0: "h1"} }

// TestSucceeds: a process that leads in place of another knows from the others what the run began with, and
// how often each was started before; the first one begins, and so does any where nothing is started again.
func TestSucceeds(t *testing.T) {
	began := &Run{start: start{first: 7, origin: "ckpt/step-6", step: 6}}
	env := []string{"A=b", began.again(2)}
	heirOf := func(ended, restarts int, env ...string) (*Run, error) {
		r := &Run{cfg: &configs.Config{}}
		r.cfg.Run.Train.Restarts = restarts
		r.io.Fleet = &left{ended: ended, others: map[int]Inherited{1: {Env: env}}}
		return r, r.succeeds()
	}
	r, err := heirOf(3, 4, env...)
	require.NoError(t, err)
	require.Equal(t, 3, r.life)
	require.Equal(t, began.start, r.start)
	require.Len(t, r.heir.others, 1)
	c, err := comebackOf(env)
	require.NoError(t, err)
	require.Equal(t, 2, c.Life)
	for _, first := range [][2]int{{0, 4}, {3, 0}} {
		r, err := heirOf(first[0], first[1], env...)
		require.NoError(t, err)
		require.Nil(t, r.heir, "%v", first)
		require.Zero(t, r.life)
	}
	_, err = heirOf(1, 4, "A=b")
	require.ErrorContains(t, err, envAgain)
	_, err = heirOf(1, 4, envAgain+"={")
	require.ErrorContains(t, err, envAgain)
}
