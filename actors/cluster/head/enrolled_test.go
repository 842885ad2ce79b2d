package head

import (
	"fmt"
	"io"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors/cluster/head/decide"
	"github.com/lfactor/lfactor/actors/cluster/store"
)

// narrow is a term that takes so many changes at a time as a real store does.
type narrow struct {
	store.Term
	most int
}

func (n *narrow) Commit(ops []store.Op) (int64, error) {
	n.most = max(n.most, len(ops))
	if len(ops) > store.MostOps+1 {
		return 0, fmt.Errorf("%d changes are too many", len(ops))
	}
	return n.Term.Commit(ops)
}

// TestManyEnrolled: a cluster may have more hosts than one commit of the store takes changes.
func TestManyEnrolled(t *testing.T) {
	term, err := newMemory().Open("head").Lead("head")
	require.NoError(t, err)
	dir := t.TempDir()
	serials := map[string]string{}
	for i := range store.MostOps + 100 {
		serials[fmt.Sprintf("h%05d", i)] = strconv.Itoa(i)
	}
	require.NoError(t, Enroll(dir, serials))
	s := &holder{o: Options{Dir: dir, Log: io.Discard}, ended: func() {}}
	n := &narrow{Term: term}
	h := s.head(n)
	h.id = nil
	go h.write()
	t.Cleanup(h.leave)
	require.NoError(t, h.restore())
	var members int
	require.NoError(t, h.look(t.Context(), func(d *decide.Head) { members = len(d.Hosts()) }))
	require.Len(t, serials, members)
	require.Greater(t, n.most, store.MostOps/2, "one commit has many")
}
