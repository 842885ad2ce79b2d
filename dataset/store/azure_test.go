package store

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Signatures are those of Azure's own library, bench/golden/azure_sign.py.
func TestAzureSignature(t *testing.T) {
	conf := azureConfig{account: "acc",
		key: base64.StdEncoding.EncodeToString([]byte("a key of thirty-two bytes, or so.")),
		now: func() time.Time { return time.Date(2013, 5, 24, 0, 0, 0, 0, time.UTC) }}
	list := url.Values{"comp": {"list"}, "prefix": {"x/y-"}, "restype": {"container"}, "marker": {"2! z"}}
	for _, c := range []struct {
		endpoint, key, ranged string
		query                 url.Values
		want                  string
	}{
		{"", "a b+c.tar", "bytes=0-9", nil, "u84quTMvTA+zctgO3KS0xvpriqevJouz3gEnQ004C7w="},
		{"", "", "", list, "UNA/Yy8L5z2iKkUUJy8G+66exZsxVXOYJoabvEG3QiU="},
		{"http://127.0.0.1:10000/acc", "x.tar", "bytes=5-9", nil,
			"844Lweow1VDoThiLm5aXiNUcSpyrBWc3+nwkpYnwzCo="},
	} {
		conf.endpoint = c.endpoint
		u, err := conf.url("data", c.key, c.query)
		require.NoError(t, err)
		r, err := conf.request(context.Background(), u)
		require.NoError(t, err)
		if c.ranged != "" {
			r.Header.Set("Range", c.ranged)
		}
		conf.sign(r)
		assert.Equal(t, "SharedKey acc:"+c.want, r.Header.Get("Authorization"), u.String())
	}
}

// A container is listed over several pages and read, with a key or a SAS, which is shown nowhere.
func TestAzure(t *testing.T) {
	content := contentOf(5000)
	keys := []string{"data/a b.tar", "data/x-000.tar", "data/x-001.tar", "data/x-001.txt"}
	var signed bool
	base := serve(t, func(w http.ResponseWriter, r *http.Request) {
		require.Equal(t, signed, strings.HasPrefix(r.Header.Get("Authorization"), "SharedKey acc:"))
		require.Equal(t, signed, r.URL.Query().Get("sig") == "")
		require.Equal(t, azureVersion, r.Header.Get("x-ms-version"))
		if r.URL.Query().Get("comp") == "list" {
			require.Equal(t, "/acc/box", r.URL.Path)
			at := 0
			if r.URL.Query().Get("marker") == "two+ words" {
				at = 2
			}
			fmt.Fprint(w, "\xEF\xBB\xBF<?xml version=\"1.0\" encoding=\"utf-8\"?><EnumerationResults><Blobs>")
			for _, k := range keys[at : at+2] {
				fmt.Fprintf(w, "<Blob><Name>%s</Name><Properties><Etag>x</Etag><Content-Length>7</Content-Length></Properties></Blob>", k)
			}
			fmt.Fprint(w, "</Blobs><NextMarker>")
			if at == 0 {
				fmt.Fprint(w, "two+ words")
			}
			fmt.Fprint(w, "</NextMarker></EnumerationResults>")
			return
		}
		require.Equal(t, "/acc/box/data/a%20b.tar", r.URL.EscapedPath())
		if at := r.Header.Get("x-ms-range"); at != "" {
			r.Header.Set("Range", at)
		}
		http.ServeContent(w, r, "x", time.Unix(1, 0), bytes.NewReader(content))
	})
	for _, signed = range []bool{true, false} {
		conf := azureConfig{account: "acc", endpoint: base + "/acc/", sas: "sv=2021&sig=se%2Bcret",
			now: time.Now}
		if signed {
			conf.key = base64.StdEncoding.EncodeToString([]byte("key"))
		}
		c := testClient(t, 1<<20)
		found, err := c.globAzure("az://box/data/x-*.tar", conf)
		require.NoError(t, err)
		require.Equal(t, []Listed{{"az://box/data/x-000.tar", 7, "x"}, {"az://box/data/x-001.tar", 7, "x"}},
			found)
		f, err := c.openAzure("az://box/data/a b.tar", conf)
		require.NoError(t, err)
		require.Equal(t, "az://box/data/a b.tar", f.Name())
		b := make([]byte, 100)
		_, err = f.ReadAt(b, 900)
		require.NoError(t, err)
		require.Equal(t, content[900:1000], b)
	}
	gone := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "x",
			http.StatusForbidden)
	})
	_, err := testClient(t, 1).openAzure("az://box/x", azureConfig{account: "acc", endpoint: gone,
		sas: "sig=secret"})
	require.ErrorContains(t, err, "check the credentials")
	require.NotContains(t, err.Error(), "secret")
	_, err = testClient(t, 1).openAzure("az://box/x", azureConfig{})
	require.ErrorContains(t, err, "AZURE_STORAGE_ACCOUNT is not set")
	_, err = testClient(t, 1).openAzure("az://box", azureConfig{account: "acc"})
	require.ErrorContains(t, err, "az://box names no key in the bucket")
}

// A key that is no base64 is told, not left out of the requests, and not shown.
func TestAzureKey(t *testing.T) {
	conf := azureConfig{account: "acc", endpoint: "http://127.0.0.1:1", key: "no base64!"}
	_, opened := testClient(t, 1).openAzure("az://box/x", conf)
	_, listed := testClient(t, 1).globAzure("az://box/*", conf)
	for _, err := range []error{opened, listed} {
		require.ErrorContains(t, err, "AZURE_STORAGE_KEY is not base64")
		require.NotContains(t, err.Error(), "no base64!")
	}
}
