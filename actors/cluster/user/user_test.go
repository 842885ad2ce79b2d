package user

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors/cluster/trust"
)

// TestEndedCertificate: a user with an ended certificate hears so, and what makes another, in place of TLS's own error.
func TestEndedCertificate(t *testing.T) {
	t.Parallel()
	began := time.Now().Add(-trust.UserLife - time.Hour)
	ca, err := trust.NewCA("lab", began)
	require.NoError(t, err)
	key, err := trust.NewKey()
	require.NoError(t, err)
	cert, err := ca.Issue(trust.Subject{Name: "ann", Role: trust.View}, &key.PublicKey, began, trust.UserLife)
	require.NoError(t, err)
	dir := filepath.Join(t.TempDir(), "lab")
	require.NoError(t, trust.SaveIdentity(dir, ca.Cert, cert, key))
	c := &Cluster{Name: "lab", Heads: []string{"127.0.0.1:1"}}
	require.NoError(t, c.Save(dir))
	_, err = c.Client()
	require.ErrorContains(t, err, "your certificate for cluster lab ended on ")
	require.ErrorContains(t, err, "lfactor cluster user add")
}
