package head

import (
	"context"
	"errors"
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors/cluster/control"
	"github.com/lfactor/lfactor/actors/cluster/head/decide"
	"github.com/lfactor/lfactor/actors/cluster/trust"
)

// TestShown: whoever may look at jobs is not told the files that they came with, what their environment is
// set to, nor passwords in addresses, by any request; the processes of the job still get all of it.
func TestShown(t *testing.T) {
	x := newHead(t)
	const secret = "hunter2"
	with := func(r trust.Role) *control.Client {
		return control.NewClient([]string{x.addr}, x.identity("user-"+string(r), trust.Subject{Name: "u",
			Role: r}))
	}
	admin, view := with(trust.Admin), with(trust.View)
	var j Job
	require.NoError(t, admin.Do(context.Background(), "POST", "/v1/jobs", control.Spec{Dir: "/", Procs: 1,
		Name: "train https://me:" + secret + "@store/x",
		Args: []string{"train", "run.yaml",
			"data.paths=[https://me:" + secret + "@store/x.tar?sig=" + secret + "]"},
		Files: map[string][]byte{"run.yaml": []byte("url: " + secret)}, Env: []string{"KEY=" + secret}}, &j))
	for _, c := range []*control.Client{admin, view} {
		for _, path := range []string{"/v1/status", "/v1/jobs", "/v1/jobs/1", "/v1/events"} {
			body, err := c.Open(context.Background(), "GET", path, nil)
			require.NoError(t, err)
			got, err := io.ReadAll(body)
			require.NoError(t, errors.Join(err, body.Close()))
			require.NotContains(t, string(got), secret, path)
			require.NotContains(t, string(got), "dXJsOi", "base64 of the run file, in "+path)
		}
	}
	require.NoError(t, view.Do(context.Background(), "GET", "/v1/jobs/1", nil, &j))
	require.Equal(t, "data.paths=[https://[hidden]@store/x.tar?[hidden]", j.Spec.Args[2])
	require.Equal(t, []string{"KEY=[hidden]"}, j.Spec.Env)
	require.Contains(t, j.Spec.Files, "run.yaml", "which there are is told")
	require.Empty(t, j.Spec.Files["run.yaml"])
	for text, want := range map[string]string{
		"": "", "plain text: a@b": "plain text: a@b", "s3://bucket/a@b": "s3://bucket/a@b",
		"at https://u:p@h:1/x@y?a=b#c, then http://v@w": "at https://[hidden]@h:1/x@y?[hidden], then http://[hidden]@w",
		"https://u:p@q@h": "https://[hidden]@h",
	} {
		require.Equal(t, want, decide.Hide(text))
	}
}
