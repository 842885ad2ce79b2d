package head

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors/cluster/control"
	"github.com/lfactor/lfactor/actors/cluster/trust"
)

// TestKnocks: who asks to join without a token is let try once a second from an address, whatever it writes
// into its request, and leaves nothing in the store: no event of a member gives way to a stranger's.
func TestKnocks(t *testing.T) {
	x := newHead(t)
	admin := control.NewClient([]string{x.addr}, x.identity("admin", trust.Subject{Name: "u", Role: trust.Admin}))
	var made struct {
		Token string `json:"token"`
	}
	require.NoError(t, admin.Do(context.Background(), "POST", "/v1/tokens", nil, &made))
	good, err := trust.ParseToken(made.Token)
	require.NoError(t, err)
	before, began := x.store.Revision(), time.Now()
	nobody := control.NewJoiner(trust.NewToken(x.ca.Hash(), x.addr))
	got := map[int]int{}
	for i := range 200 {
		got[x.status(nobody, "POST", "/v1/join", JoinRequest{Secret: fmt.Sprint(i), Name: "h2"})]++
	}
	seconds := int(time.Since(began).Seconds()) + 1
	require.LessOrEqual(t, got[http.StatusForbidden], seconds, got)
	require.Equal(t, 200, got[http.StatusForbidden]+got[http.StatusTooManyRequests])
	require.Equal(t, before, x.store.Revision(), "nothing was stored")
	require.LessOrEqual(t, strings.Count(x.log.String(), "may not join"), seconds)
	require.Contains(t, x.log.String(), "127.0.0.1 may not join: it has no token (1 such tries so far)")
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	pub, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	require.NoError(t, err)
	q := JoinRequest{Secret: good.Secret, Name: "h2", Addr: "127.0.0.1", Binary: "this",
		Key: string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: pub}))}
	require.Eventually(t, func() bool { return x.status(nobody, "POST", "/v1/join", q) == http.StatusOK },
		time.Minute, 10*time.Millisecond, "who has a token is let in, a second later")
	require.Equal(t, http.StatusForbidden, x.status(nobody, "POST", "/v1/join", q), "a token is for one host")
	big := JoinRequest{Secret: strings.Repeat("x", maxJoin), Name: "h3"}
	require.Eventually(t, func() bool {
		return x.status(nobody, "POST", "/v1/join", big) == http.StatusBadRequest
	}, time.Minute, 10*time.Millisecond)
}

// TestKnocksBounded: addresses wait each for itself, and of more than are remembered the oldest are let go.
func TestKnocksBounded(t *testing.T) {
	now := time.Unix(1, 0)
	lines := 0
	k := &knocks{now: func() time.Time { return now }, log: func(string, ...any) { lines++ }}
	k.wrong("10.0.0.1:5")
	require.Error(t, k.try("10.0.0.1:6"))
	require.NoError(t, k.try("10.0.0.2:6"))
	now = now.Add(KnockEvery - 1)
	require.Error(t, k.try("10.0.0.1:7"))
	k.wrong("10.0.0.3:1")
	require.Equal(t, 1, lines)
	now = now.Add(1)
	require.NoError(t, k.try("10.0.0.1:8"))
	require.Error(t, k.try("10.0.0.3:8"))
	for i := range knocksMost {
		k.wrong(fmt.Sprintf("[::%x]:1", i))
	}
	require.NoError(t, k.try("10.0.0.3:8"), "it was the oldest")
	require.Len(t, k.at, knocksMost)
	require.Equal(t, knocksMost, k.recent.Len())
	require.Equal(t, 2, lines)
}
