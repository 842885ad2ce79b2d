package store

import (
	"bytes"
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// claims checks a signed request for a token, and returns who asks for what.
func claims(t *testing.T, key *rsa.PublicKey, assertion string) (out struct{ Iss, Scope string }) {
	t.Helper()
	parts := strings.Split(assertion, ".")
	require.Len(t, parts, 3)
	sig, err := base64.RawURLEncoding.DecodeString(parts[2])
	require.NoError(t, err)
	sum := sha256.Sum256([]byte(parts[0] + "." + parts[1]))
	require.NoError(t, rsa.VerifyPKCS1v15(key, crypto.SHA256, sum[:], sig))
	body, err := base64.RawURLEncoding.DecodeString(parts[1])
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(body, &out))
	return out
}

// A bucket of Google's is listed and read with the token of a service account, which is asked for
// once; with a token that is given, with keys for interoperability, and without anything.
func TestGCS(t *testing.T) {
	content := contentOf(3000)
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	require.NoError(t, err)
	var tokens atomic.Int64
	var want string // what the authorization begins with
	base := serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/token":
			tokens.Add(1)
			c := claims(t, &key.PublicKey, r.FormValue("assertion"))
			require.Equal(t, "reader@project", c.Iss)
			require.Equal(t, gcsScope, c.Scope)
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, `{"access_token": "of the account", "token_type": "Bearer", "expires_in": 3600}`)
			return
		case want == "":
			require.Empty(t, r.Header.Get("Authorization"))
		default:
			require.True(t, strings.HasPrefix(r.Header.Get("Authorization"), want),
				r.Header.Get("Authorization"))
		}
		if r.URL.Query().Get("list-type") == "2" {
			fmt.Fprint(w, "<ListBucketResult><Contents><Key>a/1.tar</Key></Contents><Contents><Key>a/1.txt</Key></Contents></ListBucketResult>")
			return
		}
		require.Equal(t, "/box/a/1.tar", r.URL.Path)
		http.ServeContent(w, r, "x", time.Unix(1, 0), bytes.NewReader(content))
	})
	file := filepath.Join(t.TempDir(), "key.json")
	b, err := json.Marshal(map[string]string{"type": "service_account", "client_email": "reader@project",
		"private_key_id": "1", "token_uri": base + "/token",
		"private_key": string(pem.EncodeToMemory(&pem.Block{
			Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)}))})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(file, b, 0o600))
	t.Setenv("STORAGE_EMULATOR_HOST", strings.TrimPrefix(base, "http://"))
	for _, c := range []struct{ want, account, token, key string }{
		{"Bearer of the account", file, "", ""}, {"Bearer given", file, "given", ""},
		{"AWS4-HMAC-SHA256 Credential=GOOG1/", file, "", "GOOG1"}, {"", "", "", ""}} {
		want = c.want
		t.Setenv("GOOGLE_APPLICATION_CREDENTIALS", c.account)
		t.Setenv("GOOGLE_OAUTH_ACCESS_TOKEN", c.token)
		t.Setenv("GS_ACCESS_KEY_ID", c.key)
		t.Setenv("GS_SECRET_ACCESS_KEY", "secret")
		conf, err := gcsFromEnv()
		require.NoError(t, err)
		cl := testClient(t, 1<<20)
		found, err := cl.globS3("gs://box/a/*.tar", conf)
		require.NoError(t, err)
		require.Equal(t, []Listed{{Name: "gs://box/a/1.tar"}}, found)
		f, err := cl.openS3(found[0].Name, conf)
		require.NoError(t, err)
		got := make([]byte, 100)
		_, err = f.ReadAt(got, 50)
		require.NoError(t, err)
		require.Equal(t, content[50:150], got)
	}
	require.Equal(t, int64(1), tokens.Load())
	t.Setenv("GS_ACCESS_KEY_ID", "")
	bad := filepath.Join(t.TempDir(), "bad.json")
	require.NoError(t, os.WriteFile(bad, []byte(`{"type": "authorized_user"}`), 0o600))
	t.Setenv("GOOGLE_APPLICATION_CREDENTIALS", bad)
	_, err = gcsFromEnv()
	require.ErrorContains(t, err, "bad.json: it is no key of a service account")
}

// An endpoint that is no URL is told with the variable that it stands in.
func TestEndpointVariable(t *testing.T) {
	for name, conf := range map[string]func() (s3Config, error){
		"STORAGE_EMULATOR_HOST": gcsFromEnv,
		"AWS_ENDPOINT_URL_S3":   func() (s3Config, error) { return s3FromEnv(), nil },
		"AWS_ENDPOINT_URL":      func() (s3Config, error) { return s3FromEnv(), nil },
	} {
		t.Run(name, func(t *testing.T) {
			for _, other := range []string{"STORAGE_EMULATOR_HOST", "AWS_ENDPOINT_URL_S3",
				"AWS_ENDPOINT_URL",
				"GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_OAUTH_ACCESS_TOKEN"} {
				t.Setenv(other, "")
			}
			t.Setenv(name, "http://a b")
			c, err := conf()
			require.NoError(t, err)
			_, err = c.url("box", "key")
			require.EqualError(t, err, name+" is no URL")
		})
	}
}
