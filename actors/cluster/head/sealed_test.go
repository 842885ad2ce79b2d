package head

import (
	"bytes"
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors/cluster/control"
	"github.com/lfactor/lfactor/actors/cluster/store"
	"github.com/lfactor/lfactor/actors/cluster/trust"
)

// TestBackupHasNoPasswords: what a job came with is in no backup, and the next head reads it; a value that was
// written before, and one of another authority, are read as they are.
func TestBackupHasNoPasswords(t *testing.T) {
	x := newHead(t)
	admin := control.NewClient([]string{x.addr}, x.identity("root", trust.Subject{Name: "root", Role: trust.Admin}))
	require.NoError(t, admin.Do(context.Background(), "POST", "/v1/jobs", control.Spec{Dir: "/", Procs: 1,
		Args: []string{"train", "s3://me:PASSWORD@host/x"}, Env: []string{"LFACTOR_X=PASSWORD"},
		Files: map[string][]byte{"run.yaml": []byte("PASSWORD")}}, nil))
	body, err := admin.Open(context.Background(), "GET", "/v1/backup", nil)
	require.NoError(t, err)
	var all bytes.Buffer
	_, err = all.ReadFrom(body)
	require.NoError(t, err)
	require.Contains(t, all.String(), "jobs/1")
	require.NotContains(t, all.String(), "PASSWORD")
	require.NotContains(t, all.String(), "UEFTU1dPUk") // in base64

	open := func(ca *trust.CA, m *memory) store.Term {
		term, err := m.Open("head").Lead("head")
		require.NoError(t, err)
		s, err := newSealed(term, ca)
		require.NoError(t, err)
		return s
	}
	m := newMemory()
	_, err = open(x.ca, m).Commit([]store.Op{{Key: "jobs/1", Value: []byte("one")}, {Key: "users/a", Value: []byte("two")}})
	require.NoError(t, err)
	read := func(ca *trust.CA) (out string) {
		require.NoError(t, open(ca, m).List("jobs/", func(_ string, v []byte) error { out = string(v); return nil }))
		return out
	}
	require.Equal(t, "one", read(x.ca))
	other, err := trust.NewCA("other", time.Now())
	require.NoError(t, err)
	require.NotContains(t, read(other), "one")
}
