package head

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors/cluster/control"
	"github.com/lfactor/lfactor/actors/cluster/trust"
)

// TestUsers: an admin makes a user with a role, who may do what the role says and renew the certificate;
// when the user is revoked, all its certificates are refused, also on connections that are open.
func TestUsers(t *testing.T) {
	x := newHead(t)
	ctx := context.Background()
	admin := control.NewClient([]string{x.addr}, x.identity("root", trust.Subject{Name: "root", Role: trust.Admin}))
	key, err := trust.NewKey()
	require.NoError(t, err)
	pub, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	require.NoError(t, err)
	q := UserRequest{Name: "vera", Role: trust.View,
		Key: string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: pub}))}
	var a UserAnswer
	require.NoError(t, admin.Do(ctx, "POST", "/v1/users", q, &a))
	require.Equal(t, http.StatusBadRequest, x.status(admin, "POST", "/v1/users", q), "there is one")
	for _, role := range []trust.Role{trust.Head, trust.Agent, ""} {
		require.Equal(t, http.StatusBadRequest, x.status(admin, "POST", "/v1/users",
			UserRequest{Name: "other", Role: role, Key: q.Key}), role)
	}
	identity := func(text string) *trust.Identity {
		cert, err := trust.DecodeCert(text)
		require.NoError(t, err)
		dir := filepath.Join(x.dir, trust.Serial(cert))
		require.NoError(t, trust.SaveIdentity(dir, x.ca.Cert, cert, key))
		id, err := trust.Load(dir, nil)
		require.NoError(t, err)
		require.Greater(t, time.Until(id.Expiry()), trust.UserLife-time.Hour)
		return id
	}
	vera := control.NewClient([]string{x.addr}, identity(a.Cert))
	require.Equal(t, http.StatusOK, x.status(vera, "GET", "/v1/status", nil))
	require.Equal(t, http.StatusForbidden, x.status(vera, "POST", "/v1/jobs", nil))
	require.Equal(t, http.StatusForbidden, x.status(vera, "POST", "/v1/users", q))
	var b UserAnswer
	require.NoError(t, vera.Do(ctx, "POST", "/v1/renew", nil, &b))
	require.NotEqual(t, a.Cert, b.Cert)
	again := control.NewClient([]string{x.addr}, identity(b.Cert))
	require.Equal(t, http.StatusOK, x.status(again, "GET", "/v1/status", nil))
	var all []User
	require.NoError(t, admin.Do(ctx, "GET", "/v1/users", nil, &all))
	require.Len(t, all, 1)
	require.Equal(t, "view", all[0].Role)
	require.Len(t, all[0].Serials, 2)
	for range 4 { // the oldest is revoked where so many count
		var d UserAnswer
		require.NoError(t, again.Do(ctx, "POST", "/v1/renew", nil, &d))
		again = control.NewClient([]string{x.addr}, identity(d.Cert))
	}
	require.Error(t, vera.Do(ctx, "GET", "/v1/status", nil, nil))

	var c UserAnswer
	require.NoError(t, admin.Do(ctx, "POST", "/v1/renew", nil, &c), "who has brought the cluster up is known by its certificate")
	require.NoError(t, admin.Do(ctx, "DELETE", "/v1/users/vera", nil, nil))
	require.Error(t, again.Do(ctx, "GET", "/v1/status", nil, nil), "the connection may be open")
	require.Equal(t, http.StatusNotFound, x.status(admin, "DELETE", "/v1/users/vera", nil))
	require.NoError(t, admin.Do(ctx, "GET", "/v1/users", nil, &all))
	require.Empty(t, all)
}

// TestHeadRenewsItself: a head whose certificate is in the second half of its life makes another.
func TestHeadRenewsItself(t *testing.T) {
	x := newHead(t) // the certificates of tests live an hour
	require.Eventually(t, func() bool {
		id, err := trust.Load(filepath.Join(x.dir, "head"), nil)
		return err == nil && time.Until(id.Expiry()) > trust.HeadLife-time.Hour
	}, time.Minute, time.Millisecond)
	view := control.NewClient([]string{x.addr}, x.identity("v", trust.Subject{Name: "v", Role: trust.View}))
	require.Equal(t, http.StatusOK, x.status(view, "GET", "/v1/status", nil))
}
